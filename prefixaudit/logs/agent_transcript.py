"""Agent transcripts (Claude Code style): a JSON line for each block of a message.

    {"type": "user", "uuid": …, "sessionId": …, "timestamp": …, "message": {"role": "user", …}}
    {"type": "assistant", "uuid": …, "parentUuid": …, "sessionId": …, "requestId": …,
     "timestamp": …, "message": {"id": …, "model": …, "content": [BLOCK], "usage": {…}}}

Every line of a message repeats its usage, so lines of one message id and one request id are one
call, whose last line has the final counts; without a request id the message id alone tells. A
resumed session copies lines into a new file: these are counted once.

What an agent sends in front of the turns (its system prompt, its tools) isn't in the transcript, so
prompts aren't replayed; what the server reported is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import NotReplayable, Request, Skipped, Source
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs._fields import known_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import json_records
from prefixaudit.logs._openai_body import MESSAGES
from prefixaudit.logs._openai_response import usage_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import parse_time

_KEPT: Final = (
    "sessionId", "requestId", "uuid", "parentUuid", "isSidechain", "userType", "cwd", "gitBranch",
    "version", "agentId", "entrypoint",
)  # fmt: skip
_PROMPT: Final = NotReplayable(
    kind="no-system-prompt",
    reason="a transcript leaves out the system prompt and the tools that stand in front",
)


@dataclass(slots=True)
class _Call:
    """One call of the model while its lines come in."""

    source: Source
    first: Mapping[str, Any]
    last: Mapping[str, Any]
    num_lines: int = 1


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_line)
    has_call = sample.share_of_records(_is_call) > 0
    return 0.5 + share / 2 if has_call else 0.0


def _is_line(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and (
        "uuid" in record or "sessionId" in record or "leafUuid" in record
    )


def _is_call(record: Mapping[str, Any]) -> bool:
    message = record.get("message")
    return record.get("type") == "assistant" and isinstance(message, dict) and "usage" in message


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    seen: set[tuple[str, str | None]] = file.memory.setdefault("transcript-calls", set())
    calls: dict[tuple[str, str | None], _Call] = {}
    newest: dict[str, str | None] = {}
    for item in json_records(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, record = item
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            yield Skipped(
                source=source, kind="no-prompt", reason="the record is no line of a transcript"
            )
            continue
        if not _is_call(record):
            yield Aside("turn" if record["type"] in ("user", "assistant") else "note")
            continue
        message = record["message"]
        if message.get("model") == "<synthetic>":
            yield Aside("note")  # the client's own words on an error; no server was asked
            continue
        message_id = known_text(message, "id")
        request_id = known_text(record, "requestId")
        name = message_id if isinstance(message_id, str) and message_id else f"{source}"
        asked = request_id if isinstance(request_id, str) else newest.get(name)
        if isinstance(request_id, str) and (name, None) in calls:
            # The message's first lines had no request id: they are of the first that comes.
            calls[(name, request_id)] = calls.pop((name, None))
        newest[name] = asked
        key = (name, asked)
        if key in seen and key not in calls:
            yield Aside("repeated")
        elif key in calls:
            call = calls[key]
            if call.num_lines == 1:
                file.mark("same-call", call.source.line)
            call.num_lines += 1
            call.last = record
            file.mark("same-call", source.line)
            yield Aside("same-call")
        else:
            calls[key] = _Call(source, _without_text(record), record)
    seen.update(calls)
    for (name, asked), call in calls.items():
        yield _request(name, asked, call)


def _without_text(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: record[name] for name in _KEPT if name in record} | {
        "timestamp": record.get("timestamp")
    }


def _request(name: str, asked: str | None, call: _Call) -> Request:
    message = call.last["message"]
    model = known_text(message, "model")
    own = name if asked is None else f"{name}/{asked}"
    if name == str(call.source):
        own = f"{PurePath(call.source.path).name}:{call.source.line}"
    return Request(
        request_id=own,
        source=call.source,
        prompt=_PROMPT,
        arrival_s=parse_time(call.first.get("timestamp")),
        identity=shared_identity({"model": model} if isinstance(model, str) else {}),
        usage=usage_of([message]),
        session_id=known_text(call.first, "sessionId"),
        parent_id=known_text(call.first, "parentUuid"),
        endpoint=MESSAGES,
        generated=UNKNOWN,
        record=call.first,
    )


FORMAT = LogFormat(
    title="agent transcripts (Claude Code): usage of each call",
    fields=("request_id", "arrival_s", "session_id", "parent_id", "usage", "model"),
    recognise=_recognise,
    read=_read,
)
