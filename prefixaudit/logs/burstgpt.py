"""BurstGPT: times, sessions, models and lengths, as CSV.

    Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
    5,1,2.5,ChatGPT,472,18,490,Conversation log

`Timestamp` is in seconds from the first day on; the first release has no sessions. A failed request
has no response tokens. Prompts aren't in it, so no reuse can be computed from it.
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
    "arrival_s": "Timestamp",
    "session_id": "Session ID",
    "model": "Model",
    "num_prompt_tokens": "Request tokens",
    "num_completion_tokens": "Response tokens",
}


def _recognise(sample: Sample) -> float:
    columns = table_columns(sample)
    return 0.95 if columns >= {"Timestamp", "Model", "Request tokens", "Response tokens"} else 0.0


def _parse(row: Row, source: Source, options: ReadOptions) -> Request:
    request = request_of(row, _MAP, source, trace_block_size=None)
    if not isinstance(request.prompt, LengthOnly):
        raise RecordError("no-prompt", "the row has no `Request tokens`")
    return request


FORMAT = LogFormat(
    title="BurstGPT: lengths only",
    fields=("arrival_s", "session_id", "model", "num_prompt_tokens", "num_completion_tokens"),
    recognise=_recognise,
    read=read_table(_parse),
)
