"""Rows of Parquet and Arrow files, read group by group through pyarrow (the extra `parquet`)."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import Skipped
from prefixaudit.errors import IncompleteError
from prefixaudit.logs._file import STDIN, LogFile
from prefixaudit.logs._format import Sample

PARQUET_MAGIC: Final = b"PAR1"
ARROW_MAGIC: Final = b"ARROW1"
_BATCH_ROWS: Final = 256

Row: TypeAlias = tuple[int, dict[str, Any]]


def is_arrow(head: bytes) -> bool:
    """Say whether a file is Parquet or Arrow by its first bytes."""
    return head.startswith((PARQUET_MAGIC, ARROW_MAGIC))


def columns_of(sample: Sample) -> frozenset[str]:
    """Return the names of a file's columns; none where it can't be opened (yet)."""
    if not is_arrow(sample.head):
        return frozenset()
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return frozenset()
    try:
        if sample.head.startswith(PARQUET_MAGIC):
            return frozenset(pyarrow.parquet.read_schema(sample.path).names)
        with pyarrow.OSFile(sample.path) as source:
            return frozenset(pyarrow.ipc.open_file(source).schema.names)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError):
        return frozenset()


def arrow_rows(file: LogFile) -> Iterator[Row | Skipped]:
    """Yield the rows by column name, counted from 1, with times as seconds; or Skipped.

    Raises IncompleteError where pyarrow isn't installed or the file is compressed as a whole.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise IncompleteError(
            f"{file.path}: Parquet and Arrow files are read with pyarrow, which isn't installed",
            hint="pip install 'prefixaudit[parquet]'",
        ) from None
    if file.compression is not None:
        raise IncompleteError(
            f"{file.path}: a {file.compression} archive of a Parquet or Arrow file",
            hint="unpack it; such files are compressed inside",
        )
    source: Any = file.name
    if file.name == STDIN:
        source = io.BytesIO(b"".join(file.blocks()))
    number = 0
    try:
        groups = _groups(source, pyarrow)
        for place, (num_groups, batches) in enumerate(groups):
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    file.num_records += 1
                    yield number, {name: _plain(value) for name, value in row.items()}
            if file.num_bytes is not None:
                file.num_bytes_read = file.num_bytes * (place + 1) // num_groups
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError):
        file.num_records += 1
        reason = "the file is damaged here; rows behind this one can't be read"
        yield Skipped(source=file.source(number + 1), kind="damaged-archive", reason=reason)
    if file.num_bytes is not None:
        file.num_bytes_read = file.num_bytes


def _groups(source: Any, pyarrow: Any) -> Iterator[tuple[int, Iterator[Any]]]:
    """Yield each row group's batches, with the number of groups."""
    head = source.getvalue()[:6] if isinstance(source, io.BytesIO) else _head(source)
    if head.startswith(PARQUET_MAGIC):
        with pyarrow.parquet.ParquetFile(source) as table:
            count = table.num_row_groups
            for group in range(count):
                yield count, table.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group])
        return
    with pyarrow.ipc.open_file(source) as table:
        count = table.num_record_batches
        for group in range(count):
            batch = table.get_batch(group)
            yield (
                count,
                (batch.slice(start, _BATCH_ROWS) for start in range(0, len(batch), _BATCH_ROWS)),
            )


def _head(path: str) -> bytes:
    with Path(path).open("rb") as handle:
        return handle.read(6)


def _plain(value: Any) -> Any:
    """Return a value as JSON would have it: times as seconds, no types of Arrow's own."""
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return aware.timestamp()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value] if value and _is_deep(value[0]) else value
    return value


def _is_deep(value: Any) -> bool:
    return isinstance(value, dict | list | datetime.datetime | decimal.Decimal)
