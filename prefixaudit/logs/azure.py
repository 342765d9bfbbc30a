"""Azure's LLM inference traces of 2023 and 2024: times and lengths, as CSV.

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

Prompts aren't in it, so no reuse can be computed from it.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.core.request import LengthOnly, Request, Source
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._mapped_record import request_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import Row, read_table, table_columns

_MAP: Final = {
    "arrival_s": "TIMESTAMP",
    "num_prompt_tokens": "ContextTokens",
    "num_completion_tokens": "GeneratedTokens",
}


def _recognise(sample: Sample) -> float:
    return 0.95 if table_columns(sample) >= set(_MAP.values()) else 0.0


def _parse(row: Row, source: Source, options: ReadOptions) -> Request:
    request = request_of(row, _MAP, source, trace_block_size=None)
    if not isinstance(request.prompt, LengthOnly):
        raise RecordError("no-prompt", "the row has no `ContextTokens`")
    return request


FORMAT = LogFormat(
    title="Azure LLM inference trace: lengths only",
    fields=("arrival_s", "num_prompt_tokens", "num_completion_tokens"),
    recognise=_recognise,
    read=read_table(_parse),
)
