"""LMSYS-Chat-1M: `conversation_id`, `model`, and a `conversation` of {role, content}.

There is no system prompt and no time. Where `redacted` is true, private words were replaced: the
prompt isn't the one that was sent, and isn't replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prefixaudit.core.request import Request, Skipped, Source
from prefixaudit.core.unknown import Known
from prefixaudit.logs._chats import is_chat_list
from prefixaudit.logs._conversations import conversation_requests, turns_of
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, parsed
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import rows_of, table_columns

ROLES: Final = {name: name for name in ("user", "assistant", "system")}
_COLUMNS: Final = frozenset({"conversation_id", "conversation", "model", "turn"})


def _recognise(sample: Sample) -> float:
    if table_columns(sample) >= _COLUMNS:
        return 1.0
    share = sample.share_of_records(_is_conversation)
    return 0.5 + share / 2 if share else 0.0


def _is_conversation(record: Mapping[str, Any]) -> bool:
    return "conversation_id" in record and is_chat_list(record.get("conversation"))


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    for item in rows_of(file):
        if isinstance(item, Skipped):
            yield item
        else:
            yield from parsed(_parse, item[1], item[0])


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is no conversation")
    turns = turns_of(record.get("conversation"), "role", "content", ROLES)
    model = first_text((record,), ("model",))
    identity: dict[str, Known[str]] = {} if model is None else {"model": model}
    return conversation_requests(
        turns,
        conversation_id=first_text((record,), ("conversation_id",)),
        source=source,
        identity=shared_identity(identity),
        record={name: value for name, value in record.items() if name != "conversation"},
        is_redacted=record.get("redacted") is True,
    )


FORMAT = LogFormat(
    title="LMSYS-Chat-1M conversations",
    fields=("session_id", "parent_id", "messages", "generated", "model"),
    recognise=_recognise,
    read=_read,
)
