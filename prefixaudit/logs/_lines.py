"""Lines out of blocks of bytes, in bounded memory whatever the bytes are.

Lines come in chunks, since a Python step a line is too slow for traces of millions of lines. A
line that is too long isn't kept, only measured, and a run of NULs in front of a line (the hole that
a crashed or sparse writer leaves) is counted and not kept either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prefixaudit.logs._bytes import Blocks, DamagedStreamError


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Whole lines, each ending in a newline; only the last line of a file may have none.

    `first_line` counts from 1. `num_nul_bytes` NULs stood in front of the first line. A reader that
    comes across all newlines anyway says so in `known_newlines`, which spares a count of them.
    """

    data: bytes
    first_line: int
    num_nul_bytes: int = 0
    known_newlines: int | None = field(default=None, compare=False)

    @property
    def num_newlines(self) -> int:
        """Return how many lines end in this chunk."""
        if self.known_newlines is None:
            self.known_newlines = self.data.count(b"\n")
        return self.known_newlines

    @property
    def has_tail(self) -> bool:
        """Say whether the last line is the file's last and has no newline."""
        return not self.data.endswith(b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLine:
    """A line that wasn't kept: too long, or the place where a file can't be read any further."""

    line: int
    kind: str
    reason: str


def too_long(line: int, num_bytes: int, max_line_bytes: int) -> LostLine:
    """Return the LostLine of a line of `num_bytes` bytes."""
    return LostLine(
        line=line,
        kind="line-too-long",
        reason=f"the line has {num_bytes} bytes; at most {max_line_bytes} are read",
    )


def chunks_of_lines(blocks: Blocks, max_line_bytes: int) -> Iterator[Chunk | LostLine]:
    """Cut blocks into chunks of whole lines; at most a block and `max_line_bytes` are held.

    A chunk may hold a line that is longer than `max_line_bytes` by less than a block.
    """
    carry = bytearray()
    num_nul_bytes = 0
    num_dropped_bytes = 0
    line = 1
    try:
        for block in blocks:
            start = 0
            if num_dropped_bytes:
                end = block.find(b"\n")
                if end < 0:
                    num_dropped_bytes += len(block)
                    continue
                yield too_long(line, num_dropped_bytes + end, max_line_bytes)
                num_dropped_bytes = 0
                line += 1
                start = end + 1
            last = block.rfind(b"\n", start)
            if last >= 0:
                data = b"".join((carry, memoryview(block)[start : last + 1]))
                if carry:
                    carry = bytearray()
                elif data.startswith(b"\0"):
                    whole = len(data)
                    data = data.lstrip(b"\0")
                    num_nul_bytes += whole - len(data)
                chunk = Chunk(data=data, first_line=line, num_nul_bytes=num_nul_bytes)
                yield chunk
                num_nul_bytes = 0
                line += chunk.num_newlines
                start = last + 1
            rest = block[start:]
            if not carry and rest.startswith(b"\0"):
                whole = len(rest)
                rest = rest.lstrip(b"\0")
                num_nul_bytes += whole - len(rest)
            carry += rest
            if len(carry) > max_line_bytes:
                num_dropped_bytes = num_nul_bytes + len(carry)
                num_nul_bytes = 0
                carry = bytearray()
    except DamagedStreamError as damage:
        # What came of the line being read is lost with the rest: one loss, counted once.
        yield LostLine(line=line, kind=damage.kind, reason=damage.reason)
        return
    if num_dropped_bytes:
        yield too_long(line, num_dropped_bytes, max_line_bytes)
    elif carry or num_nul_bytes:
        yield Chunk(data=bytes(carry), first_line=line, num_nul_bytes=num_nul_bytes)
