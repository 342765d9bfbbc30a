"""Dynamo's request trace: block hashes, tokens and sessions, and the payload where it was recorded.

    {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": …,
     "agent_context": {"session_id": …}, "request": {"request_id": …, "input_tokens": 389, …,
     "replay": {"trace_block_size": 64, "input_length": 389, "input_sequence_hashes": […]}}}

File sinks wrap each record as {"timestamp": …, "event": {…}}. A `request_payload` record has the
body of the same request; the two are joined by id where they stand near each other. Hashes are 64
bits wide and cover all before them; the last one may stand for a partial block. Where there are
hashes they are the prompt, since they are exact without a tokenizer. Tool events are set aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import (
    LengthOnly,
    NotReplayable,
    PromptInput,
    Request,
    Skipped,
    Source,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._fields import (
    first_text,
    headers_of,
    known_count,
    known_text,
    shared_identity,
)
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, json_records
from prefixaudit.logs._openai_body import BodyReader, endpoint_of, identity_fields
from prefixaudit.logs._openai_response import generated_of, response_objects
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import trace_time
from prefixaudit.logs._trace_blocks import block_ids, blocks_prompt, whole_number

SCHEMA: Final = "dynamo.request.trace."
_MAX_HELD: Final = 1024
_NOTHING: Final[Mapping[str, Any]] = {}
_PATHS: Final = {
    "openai.chat_completion": "/v1/chat/completions",
    "openai.completion": "/v1/completions",
    "openai.response": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(lambda record: _event_of(record) is not None)
    return 0.6 + 0.4 * share if share else 0.0


def _event_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record itself, or what a file sink wrapped; None where it's none of Dynamo's."""
    for event in (record, record.get("event")):
        if isinstance(event, dict):
            schema = event.get("schema")
            if isinstance(schema, str) and schema.startswith(SCHEMA):
                return event
    return None


@dataclass(slots=True, kw_only=True)
class _Held:
    source: Source
    end: Mapping[str, Any] | None = None
    payload: Mapping[str, Any] | None = None


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    held: dict[str, _Held] = {}
    has_context: set[bool] = set()
    for item in json_records(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, record = item
        event = _event_of(record) if isinstance(record, dict) else None
        if event is None:
            reason = "the record is none of Dynamo's request trace"
            yield Skipped(source=source, kind="no-prompt", reason=reason)
            continue
        kind = event.get("event_type")
        part = event.get("request" if kind == "request_end" else "payload")
        if kind not in ("request_end", "request_payload"):
            # Tools started and ended; whatever a later release adds is no request either.
            yield Aside("tool-event" if str(kind).startswith("tool_") else "other-event")
            continue
        if not isinstance(part, dict) or not isinstance(part.get("request_id"), str):
            reason = "the record has no request with a `request_id`"
            yield Skipped(source=source, kind="no-prompt", reason=reason)
            continue
        request_id = part["request_id"]
        known = held.get(request_id)
        name = "end" if kind == "request_end" else "payload"
        if known is not None and getattr(known, name) is None:
            setattr(known, name, event)
            yield Aside("joined-record")
        else:
            if known is not None:
                yield from _left(file, held.pop(request_id))
            held[request_id] = _Held(source=source)
            setattr(held[request_id], name, event)
        if name == "end":
            has_context.add(isinstance(event.get("agent_context"), dict))
            if len(has_context) == 2:
                file.note(
                    "some requests have an agent_context and some don't: Dynamo's own replay "
                    "refuses such a trace"
                )
        if len(held) > _MAX_HELD:
            yield from _left(file, held.pop(next(iter(held))))
    for one in held.values():
        yield from _left(file, one)


def _left(file: LogFile, held: _Held) -> Iterator[ReadItem]:
    try:
        yield _request(file, held)
    except RecordError as error:
        yield Skipped(source=held.source, kind=error.kind, reason=error.reason)


def _request(file: LogFile, held: _Held) -> Request:
    end = held.end if held.end is not None else _NOTHING
    metrics = _inner(end, "request")
    payload = _inner(held.payload if held.payload is not None else _NOTHING, "payload")
    body = payload.get("request")
    endpoint = None
    if isinstance(body, dict):
        endpoint = endpoint_of(body, _PATHS.get(str(payload.get("endpoint"))))
    prompt = _prompt(file, metrics, body, endpoint, payload)
    identity: dict[str, Known[str]] = identity_fields(body) if isinstance(body, dict) else {}
    for place in (metrics, payload):
        if identity.get("model", UNKNOWN) is UNKNOWN:
            identity["model"] = known_text(place, "model")
    context = _inner(end, "agent_context")
    return Request(
        request_id=first_text((metrics, payload), ("request_id",))
        or f"{PurePath(held.source.path).name}:{held.source.line}",
        source=held.source,
        prompt=prompt,
        arrival_s=_arrival(end, metrics, held.payload),
        identity=shared_identity(identity),
        usage=Usage(
            num_prompt_tokens=known_count(metrics, "input_tokens"),
            num_cached_tokens=known_count(metrics, "cached_tokens"),
            num_completion_tokens=known_count(metrics, "output_tokens"),
        ),
        session_id=known_text(context, "session_id"),
        endpoint=UNKNOWN if endpoint is None else endpoint,
        generated=generated_of(response_objects(payload.get("response")))
        if payload.get("response") is not None
        else UNKNOWN,
        headers=headers_of(payload.get("http_request_headers")),
        record=held.end if held.end is not None else held.payload,
    )


def _prompt(
    file: LogFile,
    metrics: Mapping[str, Any],
    body: Any,
    endpoint: str | None,
    payload: Mapping[str, Any],
) -> PromptInput:
    replay = metrics.get("replay")
    if isinstance(replay, dict):
        block_size = whole_number(replay, "trace_block_size")
        if block_size < 1:
            raise RecordError("bad-field", "`trace_block_size` is 0; a block has 1 token or more")
        file.trace_block_size = block_size
        length = whole_number(replay, "input_length")
        ids = block_ids(replay.get("input_sequence_hashes"), "input_sequence_hashes")
        return blocks_prompt(ids, block_size, length, "input_sequence_hashes")
    if isinstance(body, dict) and endpoint is not None:
        if payload.get("payload_complete") is False:
            reason = "the recorded payload isn't complete"
            return NotReplayable(kind="cut-body", reason=reason)
        return BodyReader().prompts_of(body, endpoint)[0]
    length_known = known_count(metrics, "input_tokens")
    if isinstance(length_known, int):
        return LengthOnly(num_prompt_tokens=length_known)
    reason = "the trace has neither hashes nor a payload for this request"
    return NotReplayable(kind="no-prompt-logged", reason=reason)


def _arrival(
    end: Mapping[str, Any], metrics: Mapping[str, Any], payload: Mapping[str, Any] | None
) -> float | Unknown:
    received = trace_time(metrics.get("request_received_ms"), per_second=1000.0)
    if received is not UNKNOWN:
        return received
    ended = trace_time(end.get("event_time_unix_ms"), per_second=1000.0)
    lasted = trace_time(metrics.get("total_time_ms"), per_second=1000.0)
    if ended is not UNKNOWN and lasted is not UNKNOWN:
        return ended - lasted
    if ended is UNKNOWN and payload is not None:
        return trace_time(payload.get("event_time_unix_ms"), per_second=1000.0)
    return ended


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else _NOTHING


FORMAT = LogFormat(
    title="Dynamo's request trace: block hashes, sessions, payloads",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "hash_ids",
        "num_prompt_tokens",
        "usage",
        "model",
        "messages",
        "generated",
        "headers",
    ),
    recognise=_recognise,
    read=_read,
)
