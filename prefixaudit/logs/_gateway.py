"""Requests and answers of OpenAI-like APIs: bodies bare, or in the record of a gateway or Batch.

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

from collections.abc import Iterator, Mapping
from functools import partial
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
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Answer, ReadItem
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._messages_body import messages_rules
from prefixaudit.logs._numbers import loads
from prefixaudit.logs._openai_body import (
    RESPONSES,
    BodyReader,
    endpoint_of,
    identity_fields,
    is_body,
    num_samples,
    reads_cache,
)
from prefixaudit.logs._openai_response import generated_of, response_objects, usage_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._responses_body import StoredResponses, stored_of
from prefixaudit.logs._times import parse_time

_BODY_NAMES: Final = ("body", "request_body", "requestBody", "request", "payload")
_RESPONSE_NAMES: Final = ("response", "response_body", "responseBody")
_TIME_NAMES: Final = (
    "arrival_s", "arrival_time", "timestamp", "@timestamp", "time", "ts", "start_time",
    "startTime", "request_time", "received_at", "created_at", "created",
)  # fmt: skip
_PATH_NAMES: Final = ("path", "url", "endpoint", "uri", "route")
_SERVER_NAMES: Final = ("server", "node", "instance_id", "upstream_host", "backend", "pod")
_STATUS_NAMES: Final = ("status", "status_code", "response_code")
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 413, 422, 429})
_NOTHING: Final[Mapping[str, Any]] = {}
_IDENTITY_NAMES: Final = frozenset(IDENTITY_FIELDS)

BODY_FIELDS: Final = (
    "request_id", "arrival_s", "session_id", "endpoint", "messages", "prompt", "usage",
    "generated", "model", "cache_salt", "extra_key", "lora_name", "lora_path", "user", "tenant",
    "headers",
)  # fmt: skip


def has_body(record: Mapping[str, Any]) -> bool:
    """Say whether a record holds the body of a request."""
    return is_body(body_of(record))


def is_answer(record: Mapping[str, Any]) -> bool:
    """Say whether a record holds an answer or usage, and no request."""
    return not has_body(record) and bool(_own_answer(record))


def endpoint_of_record(record: Mapping[str, Any]) -> str | None:
    """Return the API that a record's body is for."""
    return endpoint_of(body_of(record) or _NOTHING, first_text((record,), _PATH_NAMES))


def read_bodies(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    """Yield the requests and answers of a file of such records, of whatever kinds."""
    stored = file.memory.setdefault("stored-responses", StoredResponses())
    reader = BodyReader(rules=messages_rules(options), stored=stored)
    yield from read_json_lines(partial(parse, reader=reader))(file, options)


def parse(record: Any, source: Source, reader: BodyReader) -> tuple[ReadItem, ...]:
    """Return a record's requests, or its Answer where it holds no request.

    Raises RecordError where it is neither.
    """
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is not an object with a request body")
    envelope: Mapping[str, Any] = record
    body = body_of(record)
    if body is record and not is_body(body):
        answer = _own_answer(record)
        if answer:
            return (_answer_item(record, answer, source),)
    headers = headers_of(
        envelope.get("headers", envelope.get("request_headers"))
        or _inner(envelope, "request").get("headers")
    )
    request_id = _request_id(body, envelope, headers, source)
    answer = _answer(envelope)
    endpoint = endpoint_of(body or _NOTHING, first_text((envelope,), _PATH_NAMES))
    prompts = _prompts(body, endpoint, envelope, reader)
    is_single = len(prompts) == 1
    identity = identity_fields(body) if body is not None else {}
    for name, value in _envelope_identity(envelope).items():
        if identity.get(name, UNKNOWN) in (None, UNKNOWN):
            identity[name] = value
    body = _NOTHING if body is None else body
    if endpoint == RESPONSES and isinstance(answer_id := _response_id(answer), str):
        stored = stored_of(prompts[0], answer)
        if stored is not None:
            reader.stored.add(answer_id, stored)
    shared: dict[str, Any] = {
        "source": source,
        "arrival_s": _arrival(envelope, answer),
        "identity": shared_identity(identity),
        "session_id": _session_id(body, envelope, headers),
        "parent_id": known_text(envelope, "parent_id"),
        "endpoint": endpoint if endpoint is not None else UNKNOWN,
        "server": first_text((envelope,), _SERVER_NAMES) or headers.get("x-served-by", UNKNOWN),
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


def body_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
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
    body: Mapping[str, Any] | None,
    endpoint: str | None,
    envelope: Mapping[str, Any],
    reader: BodyReader,
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
    return reader.prompts_of(body, endpoint)


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


def _own_answer(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the answer's objects: the record itself, or what it holds; none where it has none.

    A Batch output line is an answer even where the request failed.
    """
    inner = _answer(record)
    if "custom_id" in record and ("response" in record or "error" in record):
        return inner or [{}]
    if _says_usage(record) or isinstance(record.get("choices"), list):
        return [*inner, record]
    return [*inner] if any(map(_is_answer_object, inner)) else []


def _says_usage(record: Mapping[str, Any]) -> bool:
    return any(isinstance(record.get(name), dict) for name in ("usage", "meta_info"))


def _is_answer_object(item: Mapping[str, Any]) -> bool:
    return _says_usage(item) or any(
        isinstance(item.get(name), list) for name in ("choices", "output", "content")
    )


def _answer_item(
    record: Mapping[str, Any], answer: list[Mapping[str, Any]], source: Source
) -> Answer:
    is_batch = "custom_id" in record
    status = _status(record)
    prompt = NotReplayable(
        kind="answer-only",
        reason="the record holds an answer or its usage, and no log has the request of its id",
    )
    if status in _REFUSED or (is_batch and record.get("response") is None):
        prompt = NotReplayable(kind="refused", reason="the server refused the request")
    headers = headers_of(record.get("headers"))
    model = first_text((record, *answer), ("model",))
    return Answer(
        request=Request(
            request_id=_request_id(None, record, headers, source),
            source=source,
            prompt=prompt,
            # A batch runs when the server likes: the answers' times aren't those of an arrival.
            arrival_s=UNKNOWN if is_batch else _arrival(record, answer),
            identity=shared_identity({} if model is None else {"model": model}),
            usage=usage_of(answer),
            session_id=known_text(record, "session_id"),
            generated=generated_of(answer),
            headers=headers,
            record=record,
        )
    )


def _response_id(answer: list[Mapping[str, Any]]) -> str | None:
    for item in reversed(answer):
        if isinstance(item.get("id"), str) and isinstance(item.get("output"), list):
            return str(item["id"])
    return None


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
        if _IDENTITY_NAMES.isdisjoint(place):
            continue
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
