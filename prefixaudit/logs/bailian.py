"""Bailian traces of Alibaba (Qwen): block ids of 16 tokens, conversations as trees.

    {"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521,
     "output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 1090, …]}

`timestamp` is in seconds from the trace's start, `parent_chat_id` is -1 for a root. The session is
the root's chat id, as far as parents were seen before their children.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from prefixaudit.core.request import Request, Source, Usage
from prefixaudit.logs._fields import known_count
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import trace_time
from prefixaudit.logs._trace_blocks import block_ids, blocks_prompt, whole_number

BLOCK_SIZE: Final = 16
_MAX_CHATS: Final = 2**22


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_bailian_record)
    return 0.55 + share / 2 if share else 0.0


def _is_bailian_record(record: Mapping[str, Any]) -> bool:
    return (
        isinstance(record.get("hash_ids"), list)
        and type(record.get("input_length")) is int
        and type(record.get("chat_id")) is int
        and ("parent_chat_id" in record or "turn" in record)
    )


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    block_size = options.trace_block_size or BLOCK_SIZE
    file.trace_block_size = block_size
    roots: dict[int, int] = {}
    return read_json_lines(partial(_parse, block_size, roots))(file, options)


def _parse(
    block_size: int, roots: dict[int, int], record: Any, source: Source
) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is no object with `hash_ids`")
    num_prompt_tokens = whole_number(record, "input_length")
    ids = block_ids(record.get("hash_ids"), "hash_ids")
    prompt = blocks_prompt(ids, block_size, num_prompt_tokens, "hash_ids")
    chat_id, parent = record.get("chat_id"), record.get("parent_chat_id", -1)
    if type(chat_id) is not int or type(parent) is not int:
        raise RecordError("bad-field", "`chat_id` or `parent_chat_id` is no whole number")
    root = roots.get(parent, parent) if parent >= 0 else chat_id
    if len(roots) < _MAX_CHATS:
        roots[chat_id] = root
    return (
        Request(
            request_id=str(chat_id),
            source=source,
            prompt=prompt,
            arrival_s=trace_time(record.get("timestamp"), per_second=1.0),
            usage=Usage(num_completion_tokens=known_count(record, "output_length")),
            session_id=str(root),
            parent_id=None if parent < 0 else str(parent),
            record=None if record.get("type") is None else {"type": record["type"]},
        ),
    )


FORMAT = LogFormat(
    title="Bailian trace (Qwen): hash ids of blocks of 16 tokens",
    fields=(
        "arrival_s",
        "hash_ids",
        "num_prompt_tokens",
        "num_completion_tokens",
        "session_id",
        "parent_id",
    ),
    recognise=_recognise,
    read=_read,
)
