"""Lines of SGLang's log, as text or JSON: requests received and finished, and what a batch reused.

    [2026-11-29 14:20:01] Receive: obj=GenerateReqInput(rid='…', …)
    [2026-11-29 14:20:02] Finish: obj=GenerateReqInput(…), out={…}
    [2026-11-29 14:20:01] {"timestamp": …, "event": "request.finished", "rid": …, "obj": {…}, …}
    [2026-11-29 14:20:01 TP0] Prefill batch [3], #new-seq: 1, #new-token: 5, #cached-token: 64, …

Times are local and have no zone; the JSON form's have microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from prefixaudit.core.request import NO_MAPPING
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._fields import headers_of
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._python_repr import object_end
from prefixaudit.logs._sglang_objects import answer_from_repr, object_from_repr
from prefixaudit.logs._text_lines import outer_time
from prefixaudit.logs._times import parse_time

PREFIX: Final = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<rank>(?: [A-Z]{2,4}\d{1,4}){0,4})\] "
)
_MESSAGE: Final = re.compile(r"(?P<kind>Receive|Finish): obj=|(?P<openai>Receive OpenAI): obj=")
_EVENTS: Final = ("request.received", "request.finished", "request.received.openai")
BATCH: Final = re.compile(
    r"Prefill batch\b.{0,80}?#new-seq: (\d{1,9}), #new-token: (\d{1,12}), "
    r"#cached-token: (\d{1,12})"
)
MARKERS: Final = re.compile(
    r"(?:Receive|Finish)(?: OpenAI)?: obj=|ReqInput\(rid=|\"event\": ?\"request\.|'meta_info': \{|"
    r"\"meta_info\": ?\{"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A request received or finished. `obj` is None for a body of the OpenAI endpoint."""

    kind: str
    time_s: float | Unknown
    obj: Mapping[str, Any] | None
    out: Any
    body: Mapping[str, Any] | None
    rid: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A prefill batch: tokens computed and tokens found in the cache."""

    time_s: float | Unknown
    rank: str
    text: str
    num_new_tokens: int
    num_cached_tokens: int


Line: TypeAlias = Event | Batch


def line_of(text: str) -> Line | None:
    """Return what a line says; None where it's about something else.

    Raises RecordError where a request's line is cut or damaged.
    """
    match = PREFIX.search(text, 0, 600)
    front, rest = (text[: match.start()], text[match.end() :]) if match else ("", text)
    time_s = outer_time(front)
    if time_s is UNKNOWN and match is not None:
        time_s = parse_time(match.group("time"))
    if rest.lstrip().startswith("{"):
        return _json_event(rest, time_s)
    if message := _MESSAGE.match(rest):
        return _text_event(rest, message, time_s)
    if batch := BATCH.match(rest):
        return Batch(
            time_s=time_s,
            rank=(match.group("rank") if match else "").strip(),
            text=rest,
            num_new_tokens=int(batch.group(2)),
            num_cached_tokens=int(batch.group(3)),
        )
    return None


def is_event(record: Mapping[str, Any]) -> bool:
    """Say whether a JSON object is one of the logger's events."""
    return record.get("event") in _EVENTS and ("obj" in record or "rid" in record)


def _json_event(text: str, time_s: float | Unknown) -> Event | None:
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        # Nothing else that SGLang logs starts so.
        if MARKERS.search(text) or text.lstrip().startswith('{"timestamp": '):
            raise RecordError("cut-line", "the record ends in its middle: data is lost") from None
        return None
    if not isinstance(record, dict) or not is_event(record):
        return None
    own = parse_time(record.get("timestamp"))
    obj = record.get("obj")
    if not isinstance(obj, dict):
        raise RecordError("no-prompt", "`obj` of the record is no object")
    is_openai = record["event"] == "request.received.openai"
    rid = record.get("rid", obj.get("rid"))
    return Event(
        kind="finish" if record["event"] == "request.finished" else "receive",
        time_s=time_s if own is UNKNOWN else own,
        obj=None if is_openai else obj,
        out=record.get("out"),
        body=obj if is_openai else None,
        rid=rid if isinstance(rid, str) else None,
        headers=headers_of(record.get("headers")),
    )


def _text_event(text: str, message: re.Match[str], time_s: float | Unknown) -> Event:
    end = object_end(text, message.end())
    if end < 0:
        raise RecordError("cut-line", "the line of a request ends in its middle: data is lost")
    written = text[message.end() : end]
    out: Any = None
    if message.group("openai"):
        # The body that became the request, which has a line of its own.
        return Event(kind="receive", time_s=time_s, obj=None, out=None, body={}, rid=None,
                     headers=NO_MAPPING)  # fmt: skip
    if text.startswith(", out=", end):
        finish = object_end(text, end + len(", out="))
        if finish < 0:
            raise RecordError("cut-line", "the line of a request ends in its middle: data is lost")
        out = answer_from_repr(text[end + len(", out=") : finish])
    elif message.group("kind") == "Finish" and text[end:].strip():
        raise RecordError("cut-line", "the line of a request ends in its middle: data is lost")
    obj = object_from_repr(written)
    rid = obj.get("rid")
    return Event(
        kind="finish" if message.group("kind") == "Finish" else "receive",
        time_s=time_s,
        obj=obj,
        out=out,
        body=None,
        rid=rid if isinstance(rid, str) else None,
        headers=NO_MAPPING,
    )
