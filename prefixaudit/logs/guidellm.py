"""GuideLLM's datasets: a prompt a row with its counts, as CSV, JSON, JSON lines, Parquet or Arrow.

    {"prompt": "…", "prompt_tokens_count": 128, "output_tokens_count": 64}

Its `mooncake` and `weka` traces are read as these; columns by other names take `--map`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.core.request import Request, Source
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._mapped_record import guessed_map, request_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import Row, read_table, table_columns

_COUNTS: Final = frozenset(
    {"prompt_tokens_count", "input_tokens_count", "output_tokens_count", "completion_tokens_count"}
)


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_row)
    if share:
        return 0.45 + share / 2
    columns = table_columns(sample)
    return 0.9 if columns & _COUNTS and guessed_map(columns) else 0.0


def _is_row(record: Mapping[str, Any]) -> bool:
    return bool(record.keys() & _COUNTS) and any(
        isinstance(record.get(name), str) for name in ("prompt", "text", "input", "instruction")
    )


def _parse(row: Row, source: Source, options: ReadOptions) -> Request:
    field_map = {**guessed_map(row), **options.field_map}
    if "completion_tokens_count" in row:
        field_map.setdefault("num_completion_tokens", "completion_tokens_count")
    return request_of(row, field_map, source, trace_block_size=options.trace_block_size)


FORMAT = LogFormat(
    title="GuideLLM dataset: prompts with their token counts",
    fields=("request_id", "arrival_s", "session_id", "prompt", "messages", "usage", "generated"),
    recognise=_recognise,
    read=read_table(_parse),
)
