"""Rows of a table, whatever holds it: CSV, JSON, JSON lines, Parquet, Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import LengthOnly, Request, Skipped, Source
from prefixaudit.logs._arrow_rows import arrow_rows, columns_of, is_arrow
from prefixaudit.logs._csv_table import csv_table, header_of
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, json_records
from prefixaudit.logs._options import ReadOptions

LENGTHS_ONLY: Final = "some prompts are lengths only: no reuse can be computed for them"

Row: TypeAlias = Mapping[str, Any]


def table_columns(sample: Sample) -> frozenset[str]:
    """Return the columns of a CSV, Parquet or Arrow file; none where it's none of these.

    JSON has formats of its own, which say what they hold.
    """
    if is_arrow(sample.head):
        return columns_of(sample)
    if sample.records or not sample.lines or sample.lines[0][:1] in b"{[":
        return frozenset()
    header = header_of(sample.lines[0])
    return frozenset(header) if len(header) > 1 else frozenset()


def rows_of(file: LogFile) -> Iterator[tuple[Source, Any] | Skipped]:
    """Yield the table's rows with their places, or Skipped; all are counted."""
    if is_arrow(file.head):
        rows = arrow_rows(file)
    elif file.layout == "document" or file.head.lstrip(b"\0 \t\r\n")[:1] in (b"{", b"["):
        yield from json_records(file)
        return
    else:
        rows = csv_table(file)
    for row in rows:
        yield row if isinstance(row, Skipped) else (file.source(row[0]), row[1])


def read_table(
    parse: Callable[[Row, Source, ReadOptions], Request],
) -> Callable[[LogFile, ReadOptions], Iterator[ReadItem]]:
    """Return the `read` of a format that is a table; `parse` makes a row's request.

    It raises RecordError where the row has none.
    """

    def read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
        for item in rows_of(file):
            if isinstance(item, Skipped):
                yield item
                continue
            source, row = item
            try:
                if not isinstance(row, dict):
                    raise RecordError("no-prompt", "the record is no object")
                request = parse(row, source, options)
            except RecordError as error:
                yield Skipped(source=source, kind=error.kind, reason=error.reason)
                continue
            if isinstance(request.prompt, LengthOnly):
                file.note(LENGTHS_ONLY)
            yield request

    return read
