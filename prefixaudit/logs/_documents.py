"""Records out of one big JSON document: an array of records, or an object that wraps one.

Exports are often a single array, on one line or pretty-printed. Its elements are cut out without
decoding the whole, so memory is bounded by the largest element, and each is found with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prefixaudit.logs._bytes import Blocks, DamagedStreamError
from prefixaudit.logs._lines import LostLine, too_long

# Objects that do nothing but wrap the array of records, by the array's name; the scalars and
# objects that may stand in front of it.
WRAPPERS: Final = frozenset(
    {"data", "resourceSpans", "resource_spans", "traces", "observations", "records", "items",
     "rows", "results"}
)  # fmt: skip
_BESIDE_WRAPPERS: Final = frozenset(
    {"meta", "metadata", "object", "version", "schema_version", "has_more", "count", "total",
     "page", "success", "error", "status", "exported_at", "exportedAt"}
)  # fmt: skip
# Strings end on their line: JSON has no raw line feeds in them, so a lost quote spoils one line.
_TOKEN: Final = re.compile(rb'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|[{}\[\]]|"')
_LAST_KEY: Final = re.compile(rb'"([^"\\\n]{0,64})"\s*:\s*\[$')
_FIRST_KEY: Final = re.compile(rb'\s*"([^"\\\n]{0,64})"\s*:\s*')
_STRUCTURE: Final = re.compile(rb'["{}\[\]]')
_QUOTE: Final = ord('"')
_NO_END: Final = -1
_NOT_YET: Final = -2
_ANY_OBJECT: Final = re.compile(rb"\n[ \t]*\{")
_BLANK: Final = b" \t\r\n\0"
_MAX_INDENTATION: Final = 256
_LOOK_AHEAD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """The bytes of one record in a document, and the line on which it starts."""

    data: bytes
    line: int


def is_document(head: bytes, *, is_whole: bool) -> bool:
    """Say whether the start of a file is one of a document rather than of JSON lines.

    An array of objects is one. An object is one where its first line ends inside it in a way in
    which only a pretty-printed object's does, or where it is longer than the head and wraps an
    array. `is_whole` says that the head is all of the file.
    """
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
    if head.startswith(b"["):
        return head[1:].lstrip(_BLANK)[:1] == b"{"
    if not head.startswith(b"{"):
        return False
    lines = [line for line in (line.strip(_BLANK) for line in head.split(b"\n", 20)) if line]
    if len(lines) == 1:
        return not is_whole and b"\n" not in head and _wrapper_at(head, 1) is not None
    if not lines[0].endswith((b"{", b"[", b",", b":")):
        return False
    if lines[1][:1] in b'"}]':
        return True
    # `{"data": [` and one object a line below it; a record that was cut may end in `[` as well
    opened = _LAST_KEY.search(lines[0])
    if opened is None or opened.group(1).decode("latin-1") not in WRAPPERS:
        return False
    return not (
        len(lines) > 2
        and lines[1].startswith(b"{")
        and lines[1].endswith(b"}")
        and lines[2].startswith(b"{")
    )


def _wrapper_at(data: bytes, place: int) -> int | None:
    """Return the place behind the bracket of the array that an object wraps, None without one."""
    key = _FIRST_KEY.match(data, place)
    if key is None or key.group(1).decode("latin-1") not in WRAPPERS:
        return None
    rest = data[key.end() : key.end() + 256]
    inner = rest[1:].lstrip(_BLANK)[:1]
    return key.end() + 1 if rest.startswith(b"[") and inner in (b"{", b"]") else None


def elements(blocks: Blocks, max_bytes: int) -> Iterator[Element | LostLine]:
    """Cut a document into its records; at most a block and `max_bytes` are held.

    A damaged place costs what stands up to the next line on which an object starts.
    """
    yield from _Scanner(blocks, max_bytes).elements()


class _Scanner:
    def __init__(self, blocks: Blocks, max_bytes: int) -> None:
        self._blocks = blocks
        self._max_bytes = max_bytes
        self._data = b""
        self._place = 0
        self._line = 1
        self._ended = False
        self._damage: DamagedStreamError | None = None
        self._resync: re.Pattern[bytes] | None = None

    def elements(self) -> Iterator[Element | LostLine]:
        depth = 0  # of the records: 0 stand alone, 1 in an array, 2 in an array in an object
        while (found := self._next_token()) is not None:
            token, start, end, gap = found
            if gap and depth:
                yield self._loss("invalid-json", "what stands between two records is no object")
            if token == b"[" and not depth:
                self._advance(end)
                depth = 1
            elif token == b"{":
                self._advance(start)
                inside = None if depth else self._wrapped()
                if inside is None:
                    self._note_indentation()
                    yield self._element()
                else:
                    self._advance(inside)
                    depth = 2
            elif token == b"]":
                self._advance(end)
                depth = 2 if depth == 2 and self._next_wrapped() else 0
            elif token == b"}" and not depth:
                self._advance(end)
            elif len(token) > 1:
                yield self._loss("no-prompt", "a text stands where a record was expected")
                self._advance(end)
            else:
                yield self._lost("invalid-json", "no record starts here, where one was expected")
        if self._damage is not None:
            yield self._loss(self._damage.kind, self._damage.reason)

    def _note_indentation(self) -> None:
        """Remember how far records are indented, to find the next one behind a damaged place."""
        if self._resync is None:
            newline = self._data.rfind(b"\n", max(0, self._place - _MAX_INDENTATION), self._place)
            before = self._data[newline + 1 : self._place] if newline >= 0 else b"-"
            if not before.strip(b" \t"):
                self._resync = re.compile(rb"\n" + before + rb"\{")

    def _next_wrapped(self) -> bool:
        """Go to the next array of records in the wrapping object, or behind that object."""
        depth = 1
        while (found := self._next_token()) is not None:
            token, start, end, _ = found
            if depth == 1 and len(token) > 1:
                self._advance(start)
                self._look_ahead()
                inside = _wrapper_at(self._data, self._place)
                if inside is not None:
                    self._advance(inside)
                    return True
                self._advance(self._place + len(token))
                continue
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token, 0)
            self._advance(end)
            if not depth:
                return False
        return False

    def _look_ahead(self) -> None:
        while len(self._data) - self._place < _LOOK_AHEAD_BYTES and self._fill():
            pass

    def _wrapped(self) -> int | None:
        """Return the place behind the bracket of the array that the object here wraps."""
        self._look_ahead()
        place = self._place + 1
        while True:
            inside = _wrapper_at(self._data, place)
            if inside is not None:
                return inside
            key = _FIRST_KEY.match(self._data, place)
            if key is None or key.group(1).decode("latin-1") not in _BESIDE_WRAPPERS:
                return None
            behind = _behind_value(self._data, key.end())
            if behind is None:
                return None
            place = behind

    def _element(self) -> Element | LostLine:
        """Return the object that starts here, and go behind it."""
        line = self._line
        depth = 0
        place = self._place
        num_dropped = 0
        while True:
            found = _STRUCTURE.search(self._data, place)
            while found is not None:
                place = found.start()
                token = self._data[place]
                if token == _QUOTE:
                    end = _end_of_string(self._data, place)
                    if end == _NO_END:
                        self._advance(place)
                        self._go_to_next_record()
                        return _loss_at(line, "invalid-json", "a string of the record has no end")
                    if end == _NOT_YET:
                        break
                    place = end
                elif token in b"{[":
                    depth += 1
                    place += 1
                else:
                    depth -= 1
                    place += 1
                    if not depth:
                        data = self._data[self._place : place]
                        self._advance(place)
                        if num_dropped or len(data) > self._max_bytes:
                            return too_long(line, num_dropped + len(data), self._max_bytes)
                        return Element(data=data, line=line)
                found = _STRUCTURE.search(self._data, place)
            else:
                place = len(self._data)
            if len(self._data) - self._place > self._max_bytes:
                # Only measured from here on; a string cut here is taken up again from its start.
                num_dropped += place - self._place
                self._advance(place)
                if len(self._data) - self._place > self._max_bytes:
                    return self._lost_string(line, num_dropped)
            shift = self._place
            if not self._fill():
                return self._cut(line)
            place -= shift

    def _lost_string(self, line: int, num_dropped: int) -> LostLine:
        """Drop a string that is longer than a record may be, and what follows up to a new line."""
        num_bytes = num_dropped
        while (end := self._data.find(b"\n", self._place)) < 0:
            num_bytes += len(self._data) - self._place
            self._place = len(self._data)
            if not self._fill():
                return too_long(line, num_bytes, self._max_bytes)
        num_bytes += end - self._place
        self._place = end
        self._go_to_next_record()
        return too_long(line, num_bytes, self._max_bytes)

    def _cut(self, line: int) -> LostLine:
        self._place = len(self._data)
        if self._damage is not None:
            damage, self._damage = self._damage, None
            return LostLine(line=line, kind=damage.kind, reason=damage.reason)
        return LostLine(
            line=line,
            kind="cut-tail",
            reason="the file ends inside this record; it may still be being written",
        )

    def _loss(self, kind: str, reason: str) -> LostLine:
        return _loss_at(self._line, kind, reason)

    def _lost(self, kind: str, reason: str) -> LostLine:
        """Go on at the next line on which a record can start."""
        loss = self._loss(kind, reason)
        self._go_to_next_record()
        return loss

    def _go_to_next_record(self) -> None:
        pattern = self._resync or _ANY_OBJECT
        while True:
            found = pattern.search(self._data, self._place)
            if found is not None:
                self._advance(found.start() + 1)
                return
            # A line feed and an indentation at the end may belong to the next record.
            self._advance(max(self._place, len(self._data) - _LOOK_AHEAD_BYTES))
            held = len(self._data) - self._place
            if not self._fill():
                self._advance(len(self._data))
                return
            assert len(self._data) > held

    def _next_token(self) -> tuple[bytes, int, int, bool] | None:
        """Return the next token, its place, and whether anything but commas stands before it."""
        gap = False
        while True:
            match = _TOKEN.search(self._data, self._place)
            end = len(self._data) if match is None else match.start()
            gap = gap or bool(self._data[self._place : end].strip(_BLANK + b",:"))
            if match is not None and (match.group() != b'"' or b"\n" in self._data[end:]):
                return match.group(), match.start(), match.end(), gap
            self._advance(end)
            if len(self._data) - self._place <= self._max_bytes and self._fill():
                continue
            return None if match is None else (b'"', self._place, self._place + 1, gap)

    def _advance(self, place: int) -> None:
        self._line += self._data.count(b"\n", self._place, place)
        self._place = place

    def _fill(self) -> bool:
        """Append a block; drop what was passed. False at the end of the file."""
        if self._ended:
            return False
        try:
            block = next(self._blocks, None)
        except DamagedStreamError as damage:
            self._damage = damage
            block = None
        if block is None:
            self._ended = True
            return False
        self._data = self._data[self._place :] + block
        self._place = 0
        return True


def _behind_value(data: bytes, place: int) -> int | None:
    """Return the place behind a short value and its comma; None where it isn't all there."""
    depth = 0
    if data[place : place + 1] not in (b"{", b"[", b'"'):
        comma = data.find(b",", place, place + 256)
        return comma + 1 if comma >= 0 else None
    for match in _TOKEN.finditer(data, place):
        token = match.group()
        if token == b'"':
            return None
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        if depth == 0:
            comma = data.find(b",", match.end(), match.end() + 64)
            return comma + 1 if comma >= 0 and not data[match.end() : comma].strip() else None
    return None


def _end_of_string(data: bytes, start: int) -> int:
    """Return the place behind a string; _NOT_YET where the data ends, _NO_END where its line does.

    Looking for quotes and then for backslashes in front of them is ten times as fast as a pattern.
    """
    end = start
    while True:
        end = data.find(b'"', end + 1)
        stop = len(data) if end < 0 else end
        if data.find(b"\n", start, stop) >= 0:
            return _NO_END
        if end < 0:
            return _NOT_YET
        before = end
        while data[before - 1] == 0x5C:  # a backslash
            before -= 1
        if (end - before) % 2 == 0:
            return end + 1


def _loss_at(line: int, kind: str, reason: str) -> LostLine:
    return LostLine(line=line, kind=kind, reason=reason)
