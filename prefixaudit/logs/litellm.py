"""LiteLLM: standard logging payloads, and rows of the spend log (JSON lines, CSV or Parquet).

    payload    {"id": …, "call_type": "acompletion", "messages": […], "response": {…},
                "model_parameters": {"tools": …}, "startTime": 1772438400.1, "metadata": {…}}
    spend log  {"request_id": …, "api_key": HASH, "startTime": "2026-…", "metadata": "{…}",
                "messages": {}, "proxy_server_request": {…}, …}

`cache_hit` is the proxy's own cache of responses: such a request reached no engine. Texts that were
redacted or cut (`litellm_truncated`) aren't replayed. The tenant is the team, else the
organisation, else the key's hash. A provider's prefix of the model (`hosted_vllm/`) is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import NO_USAGE, NotReplayable, Request, Skipped, Source, Usage
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._chats import RESPONSE_CACHE, StoredPrompt, decoded, stored_prompt
from prefixaudit.logs._fields import first_text, known_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, parsed
from prefixaudit.logs._messages_body import messages_rules
from prefixaudit.logs._openai_body import BodyReader, identity_fields, num_samples, reads_cache
from prefixaudit.logs._openai_response import generated_of, response_objects, usage_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._otel_attributes import count_of
from prefixaudit.logs._table import rows_of, table_columns
from prefixaudit.logs._times import parse_time

_OTHER_CALLS: Final = (
    "embedding", "image_generation", "transcription", "speech", "moderation", "rerank", "ocr",
    "list_", "get_", "delete_", "create_batch", "retrieve_batch", "create_file",
)  # fmt: skip
_COLUMNS: Final = frozenset({"request_id", "call_type", "spend", "startTime", "model"})
_PATHS: Final = {
    "text_completion": "/v1/completions",
    "anthropic_messages": "/v1/messages",
    "responses": "/v1/responses",
}
_REFUSED: Final = frozenset({"400", "401", "403", "404", "413", "422", "429"})


def _recognise(sample: Sample) -> float:
    if table_columns(sample) >= _COLUMNS:
        return 1.0
    share = sample.share_of_records(_is_record)
    return 0.5 + share / 2 if share else 0.0


def _is_record(record: Mapping[str, Any]) -> bool:
    is_payload = "call_type" in record and ("model_group" in record or "hidden_params" in record)
    is_row = "request_id" in record and "api_key" in record and "spend" in record
    return "startTime" in record and (is_payload or is_row)


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    parse = partial(_parse, reader=BodyReader(rules=messages_rules(options)))
    for item in rows_of(file):
        if isinstance(item, Skipped):
            yield item
        else:
            yield from parsed(parse, item[1], item[0])


def _parse(record: Any, source: Source, reader: BodyReader) -> tuple[ReadItem, ...]:
    if not isinstance(record, dict) or not ("call_type" in record or "startTime" in record):
        raise RecordError("no-prompt", "the record is no LiteLLM payload or spend log row")
    call_type = str(record.get("call_type") or "").removeprefix("a")
    if any(name in call_type for name in _OTHER_CALLS):
        return (Aside("other-call"),)
    metadata = decoded(record.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    answer = response_objects(decoded(record.get("response")) or {})
    is_cached = _is_true(record.get("cache_hit"))
    stored = _stored(record, call_type, reader)
    refusal = _refusal(record, metadata)
    if is_cached:
        stored = StoredPrompt((RESPONSE_CACHE,), stored.body, stored.endpoint)
    elif refusal is not None:
        stored = StoredPrompt((refusal,), stored.body, stored.endpoint)
    is_single = len(stored.prompts) == 1
    request_id = first_text((record,), ("request_id", "id", "litellm_call_id"))
    request_id = request_id or f"{PurePath(source.path).name}:{source.line}"
    usage = _usage(record, metadata, answer) if is_single and not is_cached else NO_USAGE
    fields: dict[str, Known[str]] = dict(identity_fields(stored.body)) if stored.body else {}
    fields |= _identity(record, metadata)
    return tuple(
        Request(
            request_id=request_id if is_single else f"{request_id}-{place}",
            source=source,
            prompt=prompt,
            arrival_s=parse_time(record.get("startTime")),
            identity=shared_identity(fields),
            usage=usage,
            session_id=_session_id(record, metadata),
            endpoint=stored.endpoint if stored.endpoint is not None else UNKNOWN,
            generated=generated_of(answer) if is_single and not is_cached else UNKNOWN,
            num_samples=num_samples(stored.body),
            reads_cache=reads_cache(stored.body, stored.endpoint or ""),
            record={**record, "metadata": metadata},
        )
        for place, prompt in enumerate(stored.prompts)
    )


def _stored(record: Mapping[str, Any], call_type: str, reader: BodyReader) -> StoredPrompt:
    path = next((path for name, path in _PATHS.items() if name in call_type), None)
    body = decoded(record.get("proxy_server_request"))
    if isinstance(body, dict):
        inner = decoded(body.get("body"))
        body = inner if isinstance(inner, dict) else body
        if any(name in body for name in ("messages", "prompt", "input")):
            return stored_prompt(body, reader, path=path)
    parameters = record.get("model_parameters")
    value = decoded(record.get("messages"))
    if isinstance(value, dict) and set(value) == {"messages"}:
        value = value["messages"]
    extra = dict(parameters) if isinstance(parameters, dict) else {}
    inner = extra.pop("extra_body", None)
    extra |= inner if isinstance(inner, dict) else {}
    if path == "/v1/responses" and isinstance(value, str | list):
        value = {"input": value}
    elif path == "/v1/completions" and isinstance(value, list):
        texts = [item.get("content") if isinstance(item, dict) else item for item in value]
        value = {"prompt": texts[0] if len(texts) == 1 else texts}
    return stored_prompt(value, reader, path=path, extra=extra)


def _refusal(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> NotReplayable | None:
    if record.get("status") != "failure" and metadata.get("status") != "failure":
        return None
    for place in (record.get("error_information"), metadata.get("error_information")):
        if isinstance(place, dict) and str(place.get("error_code")) in _REFUSED:
            code = place["error_code"]
            reason = f"the server refused the request with status {code} before any work"
            return NotReplayable(kind="refused", reason=reason)
    return None


def _usage(
    record: Mapping[str, Any], metadata: Mapping[str, Any], answer: list[Mapping[str, Any]]
) -> Usage:
    usage = usage_of(answer)
    if usage == NO_USAGE and isinstance(metadata.get("usage_object"), dict):
        usage = usage_of([{"usage": metadata["usage_object"]}])
    if usage != NO_USAGE:
        return usage
    # Without an answer LiteLLM writes 0 for counts that it never got.
    prompt = count_of(record, ("prompt_tokens",))
    return Usage(
        num_prompt_tokens=prompt if prompt != 0 else UNKNOWN,
        num_completion_tokens=count_of(record, ("completion_tokens",)),
    )


def _identity(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Known[str]]:
    found: dict[str, Known[str]] = {}
    model = known_text(record, "model")
    if isinstance(model, str) and model:
        provider = record.get("custom_llm_provider")
        for prefix in ("hosted_vllm", *([provider] if isinstance(provider, str) else [])):
            model = model.removeprefix(f"{prefix}/")
        found["model"] = model
    key = first_text((metadata, record), ("user_api_key_hash", "api_key", "user_api_key"))
    tenant = first_text(
        (metadata, record),
        ("user_api_key_team_id", "team_id", "user_api_key_org_id", "organization_id"),
    )
    if tenant is None and key is not None:
        # LiteLLM writes the SHA-256 of keys; a key that got through is hashed as it does.
        tenant = hashlib.sha256(key.encode()).hexdigest() if key.startswith("sk-") else key
    if tenant is not None:
        found["tenant"] = tenant
    user = first_text((record,), ("end_user",)) or first_text(
        (metadata, record), ("user_api_key_end_user_id", "user_api_key_user_id", "user")
    )
    if user is not None:
        found["user"] = user
    return found


def _session_id(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> Known[str]:
    own = first_text((record, metadata), ("session_id", "litellm_session_id"))
    return own if own is not None else UNKNOWN


def _is_true(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


FORMAT = LogFormat(
    title="LiteLLM standard logging payloads and spend logs",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "endpoint",
        "messages",
        "prompt",
        "usage",
        "generated",
        "model",
        "tenant",
        "user",
    ),
    recognise=_recognise,
    read=_read,
)
