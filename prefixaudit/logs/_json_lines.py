"""JSON records out of lines: the shared part of all formats with one JSON object a line.

A sound line costs one call of orjson. Everything else goes the slow way: what can be repaired
without guessing is (NULs, byte order marks, records glued together), the rest is Skipped by kind.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import orjson

from prefixaudit.core.request import Skipped, Source
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import ReadItem
from prefixaudit.logs._lines import LostLine, too_long
from prefixaudit.logs._numbers import loads as exact_loads
from prefixaudit.logs._numbers import may_hold_long_numbers
from prefixaudit.logs._options import ReadOptions

_NUL_RUN: Final = re.compile(rb"\0+")
_FIRST_KEY: Final = re.compile(rb'\{\s*"[^"\\]{1,64}"\s*:')
LARGE_LINE_BYTES: Final = 1_000_000
_BLANK: Final = b" \t\r\n"
_END_OF_DATA: Final = "unexpected end of data"
_DEPTH_LIMIT: Final = "depth limit exceeded"

Decoded: TypeAlias = tuple[Source, Any]


class RecordError(Exception):
    """A record isn't what its format says; `reason` holds no prompt text, salt or key."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def read_json_lines(
    parse: Callable[[Any, Source], Sequence[ReadItem]],
) -> Callable[[LogFile, ReadOptions], Iterator[ReadItem]]:
    """Return the `read` of a format whose records are JSON lines.

    `parse` turns a decoded record into one or more requests, or one Skipped, or raises
    RecordError.
    """

    def read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
        for item in json_records(file):
            if isinstance(item, Skipped):
                yield item
                continue
            yield from parsed(parse, item[1], item[0])

    return read


def parsed(
    parse: Callable[[Any, Source], Sequence[ReadItem]], record: Any, source: Source
) -> Sequence[ReadItem]:
    """Return the record's requests, or the Skipped that its RecordError becomes."""
    try:
        requests = parse(record, source)
    except RecordError as error:
        return (Skipped(source=source, kind=error.kind, reason=error.reason),)
    assert requests, "a reader has to give each record at least one request, or say why not"
    return requests


def json_records(file: LogFile) -> Iterator[Decoded | Skipped]:
    """Yield each record of the file decoded, with its place, or Skipped; all are counted.

    The records are the file's lines, or the elements of a document.
    """
    if file.layout == "document":
        yield from _document_records(file)
        return
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
        loads = exact_loads if may_hold_long_numbers(chunk.data) else orjson.loads
        for number, line in enumerate(lines, chunk.first_line):
            if len(line) <= max_line_bytes and not num_nul_bytes:
                try:
                    record = loads(line)
                except orjson.JSONDecodeError:
                    pass
                else:
                    file.num_records += 1
                    if len(line) >= LARGE_LINE_BYTES:
                        file.mark("large-line", number, len(line))
                    yield file.source(number), record
                    continue
            yield from damaged_line(
                file, line, number, num_nul_bytes=num_nul_bytes, is_tail=number == tail
            )
            num_nul_bytes = 0


def _document_records(file: LogFile) -> Iterator[Decoded | Skipped]:
    for element in file.elements():
        if isinstance(element, LostLine):
            yield lost(file, element)
            continue
        try:
            record = exact_loads(element.data)
        except orjson.JSONDecodeError:
            items = _decoded(file, element.data, element.line, is_tail=False)
            file.num_records += len(items)
            yield from items
        else:
            file.num_records += 1
            yield file.source(element.line), record


def lost(file: LogFile, line: LostLine) -> Skipped:
    """Count a line that wasn't kept, and return the Skipped it becomes."""
    file.num_records += 1
    return Skipped(source=file.source(line.line), kind=line.kind, reason=line.reason)


def damaged_line(
    file: LogFile, line: bytes, number: int, *, num_nul_bytes: int, is_tail: bool
) -> Iterator[Decoded | Skipped]:
    """Yield what can be had of a line that isn't one sound JSON value; a blank line is nothing."""
    if len(line) > file.options.max_line_bytes:
        yield lost(file, too_long(number, num_nul_bytes + len(line), file.options.max_line_bytes))
        return
    num_nul_bytes += line.count(b"\0")
    pieces = [piece for piece in _NUL_RUN.split(line) if piece.strip(_BLANK)]
    items = [
        item
        for place, piece in enumerate(pieces)
        for item in _decoded(file, piece, number, is_tail and place == len(pieces) - 1)
    ]
    source = file.source(number)
    if not items and num_nul_bytes:
        items = [
            Skipped(
                source=source,
                kind="nul-bytes",
                reason=f"a hole of {num_nul_bytes} NUL bytes instead of a record",
            )
        ]
    elif num_nul_bytes:
        file.repair("nul-bytes", number, num_nul_bytes)
    file.num_records += len(items)
    yield from items


def _decoded(file: LogFile, piece: bytes, number: int, is_tail: bool) -> list[Decoded | Skipped]:
    """Decode what lies between NULs; an empty list where that is nothing but a mark."""
    source = file.source(number)
    stripped = piece.strip(_BLANK)
    while stripped.startswith(codecs.BOM_UTF8):
        file.repair("bom", number, len(codecs.BOM_UTF8))
        stripped = stripped[len(codecs.BOM_UTF8) :].strip(_BLANK)
    if not stripped:
        return []
    try:
        return [(source, exact_loads(stripped))]
    except orjson.JSONDecodeError as error:
        message = error.msg
    if message.startswith(_DEPTH_LIMIT):
        return [_skipped(source, "too-deep", "the record is nested too deeply")]
    try:
        text = stripped.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character cut in two is the end of a cut line, not a wrong byte.
        if error.reason == _END_OF_DATA:
            return [_cut(source, is_tail)]
        return [_skipped(source, "invalid-utf8", f"byte {error.start + 1} of the line is no UTF-8")]
    values, rest_starts_at = _glued(text)
    items: list[Decoded | Skipped] = [_checked(source, value) for value in values]
    if len(values) > 1 or (values and rest_starts_at < len(text)):
        file.repair("glued-records", number, 0)
    rest = stripped if not values else text[rest_starts_at:].encode("utf-8")
    if rest:
        items += _undecodable(file, rest, number, is_tail)
    return items


def _glued(text: str) -> tuple[list[Any], int]:
    """Return the JSON objects at the front of a line, and where what follows them starts.

    The standard library's decoder takes what a server's does and orjson doesn't: NaN, Infinity
    and numbers of any size.
    """
    decoder = json.JSONDecoder()
    values: list[Any] = []
    place = 0
    while place < len(text) and text[place] in "{[":
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        values.append(value)
        while place < len(text) and text[place] in " \t\r\n\ufeff":
            place += 1
    return values, place


def _checked(source: Source, value: Any) -> Decoded | Skipped:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return _skipped(
            source, "lone-surrogate", "a string holds half of a surrogate pair, which is no text"
        )
    except RecursionError:
        return _skipped(source, "too-deep", "the record is nested too deeply")
    return source, value


def _undecodable(file: LogFile, rest: bytes, number: int, is_tail: bool) -> list[Decoded | Skipped]:
    source = file.source(number)
    try:
        return [(source, orjson.loads(rest))]
    except orjson.JSONDecodeError as error:
        message = error.msg
    first_key = _FIRST_KEY.match(rest)
    if first_key:
        # A record that was cut, and behind it on the same line the next one.
        start = rest.rfind(first_key.group())
        if start > 0:
            try:
                whole = orjson.loads(rest[start:])
            except orjson.JSONDecodeError:
                pass
            else:
                file.repair("glued-records", number, 0)
                return [_cut(source, is_tail=False), (source, whole)]
    if message.startswith(_END_OF_DATA) and rest[:1] in b"{[":
        return [_cut(source, is_tail)]
    return [_skipped(source, "invalid-json", f"the line is no JSON object: {message}")]


def _cut(source: Source, is_tail: bool) -> Skipped:
    if is_tail:
        reason = "the file's last line has no end yet; the record may still be being written"
        return _skipped(source, "cut-tail", reason)
    return _skipped(source, "cut-line", "the record ends in its middle: data is lost")


def _skipped(source: Source, kind: str, reason: str) -> Skipped:
    return Skipped(source=source, kind=kind, reason=reason)
