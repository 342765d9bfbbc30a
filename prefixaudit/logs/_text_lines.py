"""Lines of servers' text logs, as text: without colours, with what stood before the server's own.

Containers and log shippers put a time of their own before each line; where it's ISO 8601 it's kept,
since it is better than what servers write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prefixaudit.core.request import Skipped
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._json_lines import lost
from prefixaudit.logs._lines import LostLine, too_long
from prefixaudit.logs._times import parse_time

_ANSI: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_OUTER_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A line without its end; `is_text` is False where bytes of it are no UTF-8.

    `ends_in_return` says that a carriage return stood before the line feed, as vLLM writes where a
    message goes on in the next line.
    """

    number: int
    text: str
    is_text: bool
    ends_in_return: bool
    is_tail: bool


def text_lines(file: LogFile) -> Iterator[TextLine | Skipped]:
    """Yield the file's lines that aren't blank; what can't be kept is counted and Skipped."""
    max_line_bytes = file.options.max_line_bytes
    for chunk in file.chunks():
        if isinstance(chunk, LostLine):
            yield lost(file, chunk)
            continue
        lines = chunk.data.split(b"\n")
        tail = chunk.first_line + len(lines) - 1 if chunk.has_tail else None
        if tail is None:
            lines.pop()
        num_nul_bytes = chunk.num_nul_bytes
        for number, line in enumerate(lines, chunk.first_line):
            if len(line) > max_line_bytes:
                yield lost(file, too_long(number, num_nul_bytes + len(line), max_line_bytes))
                num_nul_bytes = 0
                continue
            if b"\0" in line:
                num_nul_bytes += line.count(b"\0")
                line = line.replace(b"\0", b"")
            if b"\x1b" in line:
                line = _ANSI.sub(b"", line)
            blank = not line.strip(b" \t\r\xef\xbb\xbf")
            if num_nul_bytes:
                if blank:
                    reason = f"a hole of {num_nul_bytes} NUL bytes instead of a line"
                    yield lost(file, LostLine(line=number, kind="nul-bytes", reason=reason))
                else:
                    file.repair("nul-bytes", number, num_nul_bytes)
                num_nul_bytes = 0
            if blank:
                continue
            try:
                text, is_text = line.decode("utf-8"), True
            except UnicodeDecodeError:
                text, is_text = line.decode("utf-8", "replace"), False
            yield TextLine(
                number=number,
                text=text.removesuffix("\r").removeprefix("\ufeff"),
                is_text=is_text,
                ends_in_return=text.endswith("\r"),
                is_tail=number == tail,
            )


def start_of(line: bytes, num_bytes: int = 4096) -> str:
    """Return the start of a line as text without colours, to recognise a format by."""
    return _ANSI.sub(b"", line[:num_bytes]).decode("utf-8", "replace")


def outer_time(front: str) -> float | Unknown:
    """Return the ISO time in what stands before a server's own line, UNKNOWN without one."""
    match = _OUTER_TIME.search(front)
    return UNKNOWN if match is None else parse_time(match.group())
