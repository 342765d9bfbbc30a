"""Rows of CSV files, with the line on which each starts; cells may go over lines.

RFC 4180 with commas, semicolons or tabs. A quote that never ends would swallow the rest of a file:
then only the line it stands on is skipped, and reading goes on behind it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from prefixaudit.core.request import Skipped
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._json_lines import lost
from prefixaudit.logs._lines import LostLine, too_long

DELIMITERS: Final = (",", ";", "\t")
_MAX_ROW_LINES: Final = 100_000
_MAX_COLUMNS: Final = 10_000
_CELLS: Final = {
    delimiter: re.compile(
        rf'"((?:[^"]++|"")*+)"([^{re.escape(delimiter)}]*)|[^{re.escape(delimiter)}]*'
    )
    for delimiter in DELIMITERS
}

CsvRow: TypeAlias = tuple[int, dict[str, str]]
_Line: TypeAlias = tuple[int, str]


def header_of(line: bytes) -> tuple[str, ...]:
    """Return the cells of a first line, stripped; none where a quoted one has no end."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r\n")
    cells = split_row(text, delimiter_of(text))
    return () if cells is None else tuple(cell.strip() for cell in cells[:_MAX_COLUMNS])


def delimiter_of(header: str) -> str:
    """Return the delimiter that the header has most often."""
    return max(DELIMITERS, key=header.count)


def split_row(text: str, delimiter: str) -> list[str] | None:
    """Return the cells of a row; None where a quoted cell has no end yet."""
    if '"' not in text:
        return text.split(delimiter)
    pattern = _CELLS[delimiter]
    cells: list[str] = []
    place = 0
    while True:
        match = pattern.match(text, place)
        assert match is not None, "the pattern matches an empty cell"
        if match.group(1) is not None:
            cells.append(match.group(1).replace('""', '"') + match.group(2))
        elif text.startswith('"', place):
            return None
        else:
            cells.append(match.group(0))
        place = match.end() + 1
        if place > len(text):
            return cells


def csv_table(file: LogFile) -> Iterator[CsvRow | Skipped]:
    """Yield the rows below the header by column name, counted; what can't be read is Skipped."""
    lines = _Lines(file)
    header: list[str] | None = None
    delimiter = ","
    while (first := lines.next()) is not None:
        if isinstance(first, Skipped):
            yield first
            continue
        number, text = first
        if not text.strip():
            continue
        if header is None:
            delimiter = delimiter_of(text)
            header = [cell.strip() for cell in split_row(text, delimiter) or []]
            file.num_other_lines += 1
            continue
        cells, others = _assembled(lines, text, delimiter)
        file.num_records += 1
        if cells is None or len(cells) != len(header):
            # Give back what was taken on top: a row behind a damaged one is a row of its own.
            lines.give_back(others)
            yield _bad(file, number, cells, header, is_last=number == lines.tail)
            continue
        file.num_other_lines += sum(bool(line.strip()) for _, line in others)
        yield number, dict(zip(header, cells, strict=True))


def _assembled(lines: _Lines, text: str, delimiter: str) -> tuple[list[str] | None, list[_Line]]:
    """Return the cells of the row that starts with `text`, and the further lines that it took."""
    cells = split_row(text, delimiter)
    taken: list[_Line] = []
    if cells is not None:
        return cells, taken
    parts = [text]
    num_characters = len(text)
    while len(taken) < _MAX_ROW_LINES and num_characters <= lines.max_characters:
        more = lines.next()
        if more is None:
            break
        if isinstance(more, Skipped):
            # A line that was lost within a cell takes the row with it.
            lines.put_back(more)
            break
        taken.append(more)
        parts.append(more[1])
        num_characters += len(more[1]) + 1
        # A doubled quote doesn't end a cell, and most lines of a long text have none.
        if more[1].count('"') % 2:
            cells = split_row("\n".join(parts), delimiter)
            if cells is not None:
                return cells, taken
    return None, taken


def _bad(
    file: LogFile, number: int, cells: list[str] | None, header: Sequence[str], *, is_last: bool
) -> Skipped:
    if cells is None:
        kind = "cut-tail" if is_last else "cut-line"
        reason = "a quoted cell of the row has no end"
    elif len(cells) < len(header):
        kind = "cut-tail" if is_last else "cut-line"
        reason = f"the row has {len(cells)} cells; the header has {len(header)}"
    else:
        kind, reason = "bad-row", f"the row has {len(cells)} cells; the header has {len(header)}"
    return Skipped(source=file.source(number), kind=kind, reason=reason)


class _Lines:
    """The lines of a file, one by one, with some of them to be had again.

    `tail` is the number of the last one where it has no end yet, once it was read.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._lines = self._read()
        self._again: deque[_Line | Skipped] = deque()
        self.max_characters = file.options.max_line_bytes
        self.tail: int | None = None

    def next(self) -> _Line | Skipped | None:
        """Return the next line, None at the end."""
        if self._again:
            return self._again.popleft()
        return next(self._lines, None)

    def put_back(self, item: _Line | Skipped) -> None:
        """Have an item come next."""
        self._again.appendleft(item)

    def give_back(self, lines: Sequence[_Line]) -> None:
        """Have lines come next, in their order."""
        self._again.extendleft(reversed(lines))

    def _read(self) -> Iterator[_Line | Skipped]:
        limit = self._file.options.max_line_bytes
        for chunk in self._file.chunks():
            if isinstance(chunk, LostLine):
                yield lost(self._file, chunk)
                continue
            lines = chunk.data.split(b"\n")
            if chunk.has_tail:
                self.tail = chunk.first_line + len(lines) - 1
            else:
                lines.pop()
            num_nul_bytes = chunk.num_nul_bytes
            for number, line in enumerate(lines, chunk.first_line):
                if len(line) > limit:
                    yield lost(self._file, too_long(number, num_nul_bytes + len(line), limit))
                else:
                    yield self._text(number, line, num_nul_bytes)
                num_nul_bytes = 0

    def _text(self, number: int, line: bytes, num_nul_bytes: int) -> _Line | Skipped:
        if b"\0" in line:
            num_nul_bytes += line.count(b"\0")
            line = line.replace(b"\0", b"")
        if num_nul_bytes:
            if not line.strip():
                reason = f"a hole of {num_nul_bytes} NUL bytes instead of a row"
                hole = LostLine(line=number, kind="nul-bytes", reason=reason)
                return lost(self._file, hole)
            self._file.repair("nul-bytes", number, num_nul_bytes)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} of the line is no UTF-8"
            bad = LostLine(line=number, kind="invalid-utf8", reason=reason)
            return lost(self._file, bad)
        return number, text.removesuffix("\r").removeprefix("\ufeff")
