"""One log file while it is read: its bytes as chunks of lines, and what was counted on the way."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from prefixaudit.core.reading import EngineReading, PoolReading
from prefixaudit.core.request import Source
from prefixaudit.errors import IncompleteError
from prefixaudit.logs._bytes import Blocks, DamagedStreamError, as_utf8, decompressed, raw_blocks
from prefixaudit.logs._documents import Element, elements
from prefixaudit.logs._lines import Chunk, LostLine, chunks_of_lines
from prefixaudit.logs._options import ReadOptions

STDIN: Final = "-"
_MAX_LISTED_REPAIRS: Final = 100
_MAX_READINGS: Final = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A line that reads all the same, and something about it (see LogFile).

    Damage that cost no record is of the kinds bom, nul-bytes and glued-records.
    """

    source: Source
    kind: str
    num_bytes: int


class LogFile:
    """A file and its counts, which grow while it is iterated.

    path             as the user gave it, `<stdin>` for standard input
    format_name      None until it was recognised, or where the file is empty
    head             the first bytes of its content, by which binary formats are known
    encoding         utf-8, utf-8-sig (with a byte order mark), utf-16-le or utf-16-be
    compression      gzip, zstd or None
    num_bytes        size on disk; None where it isn't known (pipes)
    num_bytes_read   of these
    num_records      physical records seen: each gave requests or one Skipped
    num_other_lines  lines that are no records of their own: a server's other messages, the further
                     lines of a request
    notes            what a reader of the result has to know, a sentence each: times without a year
    num_repaired     by kind; `repairs` lists the first of them
    num_marked       sound lines to know of, by kind, `marks` the first of each: large-line
                     (a megabyte or more), same-call (one of several lines of one call)
    trace_block_size tokens a hash id, for traces
    claims           how surely formats claim the file, the surest first; empty where one was named
    readings         what an engine said of its cache between the records; they are no records.
                     Of very many, every second one is kept
    pool_readings    what it said of its pool at start-up
    layout           lines, or document: one JSON array, or an object that wraps one
    set_aside        records that are no request of their own, by kind: an answer that was joined
                     to its request, a turn of a transcript, a span of another kind
    looks_back       whether it's read twice, see LogFormat.looks_back
    memory           what readers remember across the files of one stream
    """

    def __init__(self, name: str, options: ReadOptions) -> None:
        self.name = name
        self.options = options
        self.path = "<stdin>" if name == STDIN else name
        self.format_name: str | None = None
        self.head = b""
        self.encoding = "utf-8"
        self.compression: str | None = None
        self.num_bytes: int | None = None
        self.num_bytes_read = 0
        self.num_records = 0
        self.num_other_lines = 0
        self.notes: list[str] = []
        self.num_repaired: Counter[str] = Counter()
        self.repairs: list[Repair] = []
        self.num_marked: Counter[str] = Counter()
        self.marks: list[Repair] = []
        self.trace_block_size: int | None = None
        self.claims: dict[str, float] = {}
        self.readings: list[EngineReading] = []
        self.pool_readings: list[PoolReading] = []
        self.layout: Literal["lines", "document"] = "lines"
        self.set_aside: Counter[str] = Counter()
        self.looks_back = False
        self.memory: dict[str, Any] = {}
        self._is_regular = False
        if name != STDIN:
            try:
                status = Path(name).stat()
            except OSError as error:
                raise IncompleteError(f"{name}: can't be read: {error.strerror}") from error
            self._is_regular = stat.S_ISREG(status.st_mode)
            self.num_bytes = status.st_size if self._is_regular else None
        self._peeked: list[bytes] = []
        self._rest: Blocks | None = None

    def peek(self) -> Blocks:
        """Yield decoded blocks from the start; they come again when the file is read.

        A pipe can't be opened twice, so what was peeked of it is kept.
        """
        if self._is_regular:
            yield from self._open()
            self.num_bytes_read = 0
            return
        self._rest = self._open()
        try:
            for block in self._rest:
                self._peeked.append(block)
                yield block
        except DamagedStreamError as damage:
            self._rest = damaged(damage)
            raise

    def chunks(self) -> Iterator[Chunk | LostLine]:
        """Yield the file's lines in chunks; what can't be kept or read comes as LostLine."""
        return chunks_of_lines(self._blocks(), self.options.max_line_bytes)

    def elements(self) -> Iterator[Element | LostLine]:
        """Yield the records of a file whose layout is a document."""
        return elements(self._blocks(), self.options.max_line_bytes)

    def blocks(self) -> Blocks:
        """Yield the file's bytes, decompressed; raises DamagedStreamError where they end early."""
        return self._blocks()

    def again(self) -> LogFile | None:
        """Return the same file with counts of its own, to read it twice; None for a pipe."""
        if not self._is_regular:
            return None
        twin = LogFile(self.name, self.options)
        twin.format_name, twin.layout, twin.memory = self.format_name, self.layout, self.memory
        twin.head = self.head
        return twin

    def _blocks(self) -> Blocks:
        self.num_bytes_read = 0 if self._is_regular else self.num_bytes_read
        if self._rest is None:
            return self._open()
        peeked, self._peeked = self._peeked, []
        return chain(peeked, self._rest)

    def source(self, line: int) -> Source:
        """Return where a line of this file stands."""
        return Source(self.path, line)

    def repair(self, kind: str, line: int, num_bytes: int) -> None:
        """Count damage that cost no record."""
        self.num_repaired[kind] += 1
        if len(self.repairs) < _MAX_LISTED_REPAIRS:
            self.repairs.append(Repair(source=self.source(line), kind=kind, num_bytes=num_bytes))

    def mark(self, kind: str, line: int, num_bytes: int = 0) -> None:
        """Count a sound line that a reader of the result has to know of."""
        self.num_marked[kind] += 1
        if self.num_marked[kind] <= _MAX_LISTED_REPAIRS:
            self.marks.append(Repair(source=self.source(line), kind=kind, num_bytes=num_bytes))

    def read_off(self, reading: EngineReading | PoolReading) -> None:
        """Keep what an engine said of its own cache."""
        if isinstance(reading, PoolReading):
            if len(self.pool_readings) < _MAX_LISTED_REPAIRS:
                self.pool_readings.append(reading)
            return
        self.readings.append(reading)
        if len(self.readings) >= _MAX_READINGS:
            last = self.readings[-1]
            self.readings = [*self.readings[:-1:2], last]

    def note(self, text: str) -> None:
        """Note something that a reader of the result has to know; the same text counts once."""
        if text not in self.notes:
            self.notes.append(text)

    def _open(self) -> Blocks:
        if self.name == STDIN:
            yield from self._read(sys.stdin.buffer)
            return
        try:
            handle = Path(self.name).open("rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise IncompleteError(f"{self.name}: can't be read: {error.strerror}") from error
        with handle:
            if self._is_regular and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            yield from self._read(handle)

    def _read(self, handle: BinaryIO) -> Blocks:
        def count(num_bytes: int) -> None:
            self.num_bytes_read += num_bytes

        options = self.options
        plain, self.compression = decompressed(
            raw_blocks(handle, count), options.max_decompressed_bytes
        )
        text, self.encoding = as_utf8(plain)
        yield from text


def damaged(damage: DamagedStreamError) -> Blocks:
    """Yield nothing and raise."""
    yield from ()
    raise damage
