"""WildChat: `conversation_hash`, `model`, `timestamp`, and a `conversation` of turns.

    {"conversation_hash": …, "model": …, "timestamp": …, "hashed_ip": …, "redacted": false,
     "conversation": [{"role": "user", "content": …, "hashed_ip": …, "redacted": false},
                      {"role": "assistant", "content": …, "timestamp": …}]}

The hashed address is the only name of a user. Conversations of which anything was redacted aren't
replayed. A turn's time is that of its answer, where the set has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from prefixaudit.core.request import Request, Skipped, Source
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._chats import is_chat_list
from prefixaudit.logs._conversations import conversation_requests, turns_of
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, parsed
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import rows_of, table_columns
from prefixaudit.logs._times import parse_time

_ROLES: Final = {name: name for name in ("user", "assistant", "system")}
_COLUMNS: Final = frozenset({"conversation_hash", "conversation", "model"})


def _recognise(sample: Sample) -> float:
    if table_columns(sample) >= _COLUMNS:
        return 1.0
    share = sample.share_of_records(_is_conversation)
    return 0.5 + share / 2 if share else 0.0


def _is_conversation(record: Mapping[str, Any]) -> bool:
    return ("conversation_hash" in record or "hashed_ip" in record) and is_chat_list(
        record.get("conversation")
    )


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    for item in rows_of(file):
        if isinstance(item, Skipped):
            yield item
        else:
            yield from parsed(_parse, item[1], item[0])


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is no conversation")
    turns = [_timed(turn) for turn in turns_of(
        record.get("conversation"), "role", "content", _ROLES
    )]  # fmt: skip
    model = first_text((record,), ("model",))
    user = first_text((record, *turns), ("hashed_ip",))
    identity: dict[str, Known[str]] = {
        name: value for name, value in (("model", model), ("user", user)) if value is not None
    }
    is_redacted = any(place.get("redacted") is True for place in (record, *turns))
    requests = conversation_requests(
        turns,
        conversation_id=first_text((record,), ("conversation_hash", "conversation_id")),
        source=source,
        identity=shared_identity(identity),
        record={name: value for name, value in record.items() if name != "conversation"},
        is_redacted=is_redacted,
    )
    last = requests[-1]
    if last.arrival_s is UNKNOWN:
        # The record's own time is that of its last turn.
        moment = parse_time(_timed(record).get("timestamp"))
        requests = (*requests[:-1], replace(last, arrival_s=moment))
    return requests


def _timed(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the turn with its time as text; Parquet has it as a datetime."""
    moment = turn.get("timestamp")
    return {**turn, "timestamp": moment.isoformat()} if isinstance(moment, datetime) else turn


FORMAT = LogFormat(
    title="WildChat conversations",
    fields=("arrival_s", "session_id", "parent_id", "messages", "generated", "model", "user"),
    recognise=_recognise,
    read=_read,
)
