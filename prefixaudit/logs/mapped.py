"""Any table: CSV, JSON, JSON lines, Parquet or Arrow, with `--map field=column`.

Columns whose names say what they hold are taken without a map (`prompt`, `messages`, `timestamp`,
`input_tokens` …). The fields are those that `prefixaudit list formats` names: a prompt as `prompt`,
`messages`, `prompt_token_ids`, `body`, `hash_ids` or just `num_prompt_tokens`, and what else is
known.
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixaudit.core.request import LengthOnly, Skipped
from prefixaudit.logs._arrow_rows import is_arrow
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._mapped_record import (
    FIELDS,
    PROMPT_FIELDS,
    checked_map,
    guessed_map,
    request_of,
)
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import LENGTHS_ONLY, rows_of, table_columns


def _recognise(sample: Sample) -> float:
    has_prompt = any(name in PROMPT_FIELDS for name in guessed_map(table_columns(sample)))
    if is_arrow(sample.head):
        # Also where pyarrow is missing or the columns' names say nothing: reading says so.
        return 0.1 + 0.1 * has_prompt
    return 0.2 if has_prompt else 0.0


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    user_map = checked_map(options.field_map)
    guessed: dict[tuple[str, ...], dict[str, str]] = {}
    for item in rows_of(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, row = item
        if not isinstance(row, dict):
            yield Skipped(source=source, kind="no-prompt", reason="the record is no object")
            continue
        names = tuple(row)
        if names not in guessed:
            if len(guessed) > 1000:
                guessed.clear()
            guessed[names] = guessed_map(names)
        try:
            request = request_of(
                row,
                {**guessed[names], **user_map},
                source,
                trace_block_size=options.trace_block_size,
            )
        except RecordError as error:
            yield Skipped(source=source, kind=error.kind, reason=error.reason)
            continue
        if isinstance(request.prompt, LengthOnly):
            file.note(LENGTHS_ONLY)
        yield request


FORMAT = LogFormat(
    title="any table (CSV, JSON, JSON lines, Parquet, Arrow), by --map field=column",
    fields=FIELDS,
    recognise=_recognise,
    read=_read,
)
