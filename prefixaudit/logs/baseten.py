"""Baseten's completion traces, as Parquet or Arrow: prompts as text, with block hashes beside them.

Columns: timestamp_start_unix_ms, prompt, input_tokens, output_tokens, and perhaps total_hashes with
block_size, provided_session_id, poor_man_session_id (derived where none was sent). The text is the
prompt; where it's empty the hashes are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from prefixaudit.core.request import Request, Source
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._mapped_record import request_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import Row, read_table, table_columns
from prefixaudit.logs._times import trace_time

_MAP: Final = {
    "prompt": "prompt",
    "num_prompt_tokens": "input_tokens",
    "num_completion_tokens": "output_tokens",
    "hash_ids": "total_hashes",
    "block_size": "block_size",
}


def _recognise(sample: Sample) -> float:
    wanted = {"timestamp_start_unix_ms", "prompt", "input_tokens", "output_tokens"}
    return 0.95 if table_columns(sample) >= wanted else 0.0


def _parse(row: Row, source: Source, options: ReadOptions) -> Request:
    sent = row.get("provided_session_id") is not None
    session = "provided_session_id" if sent else "poor_man_session_id"
    request = request_of(
        row,
        _MAP | {"session_id": session},
        source,
        trace_block_size=options.trace_block_size,
    )
    time_s = trace_time(row.get("timestamp_start_unix_ms"), per_second=1000.0)
    return replace(request, arrival_s=time_s)


FORMAT = LogFormat(
    title="Baseten completion trace (Parquet, Arrow)",
    fields=("arrival_s", "session_id", "prompt", "hash_ids", "usage"),
    recognise=_recognise,
    read=read_table(_parse),
)
