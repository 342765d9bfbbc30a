"""Exports that come as CSV as well as JSON: their rows by column, where they are CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefixaudit.core.request import Skipped, Source
from prefixaudit.logs._csv_table import csv_table, header_of
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Sample


def looks_like_csv(sample: Sample, columns: frozenset[str]) -> bool:
    """Say whether the first line is a CSV header with all these columns."""
    if sample.records or not sample.lines:
        return False
    return columns <= set(header_of(sample.lines[0]))


def csv_rows(
    file: LogFile, columns: frozenset[str]
) -> Iterator[tuple[Source, dict[str, Any]] | Skipped] | None:
    """Return the rows of a file that starts with a header with these columns; None for another.

    Empty cells are left out: they say nothing.
    """
    first = next((line for line in file.head.split(b"\n") if line.strip()), b"")
    return _rows(file) if columns <= set(header_of(first)) else None


def _rows(file: LogFile) -> Iterator[tuple[Source, dict[str, Any]] | Skipped]:
    for row in csv_table(file):
        if isinstance(row, Skipped):
            yield row
        else:
            yield file.source(row[0]), {name: cell for name, cell in row[1].items() if cell != ""}
