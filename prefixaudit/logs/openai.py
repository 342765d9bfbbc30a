"""OpenAI request bodies, chat and completions: bare, inside a gateway's record, or Batch input.

    bare      {"model": …, "messages": […]}
    gateway   {"timestamp": …, "request_id": …, "path": "/v1/…", "status": 200, "headers": {…},
               "body": {…}, "response": {…}}
    Batch     {"custom_id": …, "method": "POST", "url": "/v1/…", "body": {…}}

The body may be text that holds JSON, and be called `request`, `request_body` or `payload`; the
answer may stand beside it or, for a bare body, in it. Beside the body a gateway may name `tenant`,
`session_id`, `lora` {name, path, revision, int_id}, `instance` and any identity field.

A record with several prompts gives a request each, named `ID-0`, `ID-1`, … as vLLM does; the
server's usage is their sum then, and is left out.

A failed request (status 400 or above) is a request: its prompt may well have been computed, by
500, 503, 499 (the client went away) or 408. Only where the server refused it before any work (400,
401, 403, 404, 405, 413, 422, 429) is the prompt not replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

import orjson

from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.request import (
    NO_USAGE,
    Generated,
    NotReplayable,
    PromptInput,
    Request,
    Source,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._fields import (
    first_text,
    headers_of,
    known_text,
    shared_identity,
    token_ids,
)
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._numbers import loads
from prefixaudit.logs._openai_body import (
    endpoint_of,
    identity_fields,
    is_body,
    num_samples,
    prompts_of,
    reads_cache,
)
from prefixaudit.logs._openai_response import generated_of, response_objects, usage_of
from prefixaudit.logs._times import parse_time

_BODY_NAMES: Final = ("body", "request_body", "requestBody", "request", "payload")
_RESPONSE_NAMES: Final = ("response", "response_body", "responseBody")
_TIME_NAMES: Final = (
    "arrival_s", "arrival_time", "timestamp", "@timestamp", "time", "ts", "start_time",
    "startTime", "request_time", "received_at", "created_at", "created",
)  # fmt: skip
_PATH_NAMES: Final = ("path", "url", "endpoint", "uri", "route")
_STATUS_NAMES: Final = ("status", "status_code", "response_code")
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 413, 422, 429})
_NOTHING: Final[Mapping[str, Any]] = {}
_IDENTITY_NAMES: Final = frozenset(IDENTITY_FIELDS)


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_has_body)
    return 0.4 + share / 2 if share else 0.0


def _has_body(record: Mapping[str, Any]) -> bool:
    return is_body(_body_of(record))


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is not an object with a request body")
    envelope: Mapping[str, Any] = record
    body = _body_of(record)
    headers = headers_of(
        envelope.get("headers", envelope.get("request_headers"))
        or _inner(envelope, "request").get("headers")
    )
    request_id = _request_id(body, envelope, headers, source)
    answer = _answer(envelope)
    endpoint = endpoint_of(body or _NOTHING, first_text((envelope,), _PATH_NAMES))
    prompts = _prompts(body, endpoint, envelope)
    is_single = len(prompts) == 1
    identity = identity_fields(body) if body is not None else {}
    for name, value in _envelope_identity(envelope).items():
        if identity.get(name, UNKNOWN) in (None, UNKNOWN):
            identity[name] = value
    body = _NOTHING if body is None else body
    shared: dict[str, Any] = {
        "source": source,
        "arrival_s": _arrival(envelope, answer),
        "identity": shared_identity(identity),
        "session_id": _session_id(body, envelope, headers),
        "parent_id": known_text(envelope, "parent_id"),
        "endpoint": endpoint if endpoint is not None else UNKNOWN,
        "num_samples": num_samples(body),
        "reads_cache": reads_cache(body, endpoint or ""),
        "headers": headers,
        "record": record,
    }
    return tuple(
        Request(
            request_id=request_id if is_single else f"{request_id}-{place}",
            prompt=prompt,
            usage=usage_of([envelope, *answer]) if is_single else NO_USAGE,
            generated=_generated(prompt, envelope, answer) if is_single else UNKNOWN,
            **shared,
        )
        for place, prompt in enumerate(prompts)
    )


def _body_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the body, which may be the record itself; None where its JSON can't be read."""
    for name in _BODY_NAMES:
        value = record.get(name)
        if isinstance(value, str):
            try:
                value = loads(value)
            except orjson.JSONDecodeError:
                if name != "request":
                    return None
                continue
        if isinstance(value, dict):
            inner = value.get("body")
            if isinstance(inner, dict) and not is_body(value):
                return inner
            return value
    return record


def _prompts(
    body: Mapping[str, Any] | None, endpoint: str | None, envelope: Mapping[str, Any]
) -> tuple[PromptInput, ...]:
    if body is None:
        return (
            NotReplayable(kind="cut-body", reason="the logged body is not whole JSON: it was cut"),
        )
    if endpoint is None:
        raise RecordError("no-prompt", "the record has no request body with a prompt")
    status = _status(envelope)
    if status in _REFUSED:
        reason = f"the server refused the request with status {status} before any work"
        return (NotReplayable(kind="refused", reason=reason),)
    return prompts_of(body, endpoint)


def _status(envelope: Mapping[str, Any]) -> int | None:
    for place in (envelope, _inner(envelope, "response")):
        for name in _STATUS_NAMES:
            value = place.get(name)
            if isinstance(value, str) and value.isdecimal() and len(value) == 3:
                return int(value)
            if type(value) is int:
                return value
    return None


def _answer(envelope: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    for name in _RESPONSE_NAMES:
        if envelope.get(name) is not None:
            return response_objects(envelope[name])
    return []


def _generated(
    prompt: PromptInput, envelope: Mapping[str, Any], answer: list[Mapping[str, Any]]
) -> Generated | None | Unknown:
    if isinstance(prompt, NotReplayable) and prompt.kind == "refused":
        return None
    for place in (envelope, *answer):
        if isinstance(place.get("output_token_ids"), list):
            return TokenIds(token_ids=token_ids(place["output_token_ids"], "output_token_ids"))
    return generated_of(answer)


def _arrival(envelope: Mapping[str, Any], answer: list[Mapping[str, Any]]) -> float | Unknown:
    for place in (envelope, *answer[:1]):
        for name in _TIME_NAMES:
            if name in place:
                moment = parse_time(place[name])
                if moment is not UNKNOWN:
                    return moment
    return UNKNOWN


def _request_id(
    body: Mapping[str, Any] | None,
    envelope: Mapping[str, Any],
    headers: Mapping[str, str],
    source: Source,
) -> str:
    own = first_text((envelope,), ("request_id", "requestId", "custom_id", "id"))
    return (
        own
        or headers.get("x-request-id")
        or first_text((body or _NOTHING,), ("request_id", "rid"))
        or first_text((_inner(envelope, "response"),), ("request_id", "id"))
        or f"{PurePath(source.path).name}:{source.line}"
    )


def _session_id(
    body: Mapping[str, Any], envelope: Mapping[str, Any], headers: Mapping[str, str]
) -> Known[str]:
    # vLLM looks at the body, then the header, then vllm_xargs; what a gateway adds is its own.
    own = first_text((envelope, body), ("session_id",))
    if own is not None:
        return own
    if "x-session-id" in headers:
        return headers["x-session-id"]
    inner = first_text((_inner(body, "vllm_xargs"),), ("session_id",))
    inner = inner or first_text((_inner(body, "session_params"),), ("id",))
    return inner if inner is not None else known_text(envelope, "session_id")


def _envelope_identity(envelope: Mapping[str, Any]) -> dict[str, Known[str]]:
    """Return identity fields that the gateway names beside the body.

    An adapter's `int_id` counts its loads within a server: another number under the same name is
    another load of weights, so it stands for the revision where no better one is logged.
    """
    found: dict[str, Known[str]] = {}
    for place in (_inner(envelope, "instance"), _inner(envelope, "identity"), envelope):
        for name in _IDENTITY_NAMES & place.keys():
            if place[name] is None or isinstance(place[name], str):
                found[name] = place[name]
    for name in ("lora", "lora_request"):
        if name not in envelope:
            continue
        adapter = envelope[name]
        if adapter is None:
            return found | {"lora_name": None, "lora_revision": None, "lora_path": None}
        if isinstance(adapter, dict):
            texts = {
                "lora_name": first_text((adapter,), ("name", "lora_name")),
                "lora_path": first_text((adapter,), ("path", "lora_path")),
                "lora_revision": first_text((adapter,), ("revision", "sha256", "digest")),
            }
            number = first_text((adapter,), ("int_id", "lora_int_id"))
            if texts["lora_revision"] is None and number is not None:
                texts["lora_revision"] = f"int_id={number}"
            found |= {field: text for field, text in texts.items() if text is not None}
    return found


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else _NOTHING


FORMAT = LogFormat(
    title="OpenAI chat and completions bodies: bare, in a gateway's records, or Batch input",
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
        "cache_salt",
        "extra_key",
        "lora_name",
        "lora_path",
        "user",
        "tenant",
        "headers",
    ),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
