"""Mooncake traces: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, a JSON line each.

A hash id stands for a block of the trace's own size given all before it, usually 512 tokens; the
last id may stand for a partial block. The size isn't in the file: it's what was asked for, else
512 where the first records fit it, else the one power of two that they fit.

Long traces are parsed by a compiled kernel, and their requests come as columns (TraceBatch); any
line that it doesn't take goes through orjson, with the same result. `session_id` and `request_id`
are taken where a trace has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from prefixaudit.core.request import BlockHashes, Request, Skipped, Source, Usage
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.errors import IncompleteError
from prefixaudit.logs._fields import known_count, known_text
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import (
    Decoded,
    RecordError,
    damaged_line,
    json_records,
    lost,
    parsed,
)
from prefixaudit.logs._lines import Chunk, LostLine
from prefixaudit.logs._options import ReadOptions

DEFAULT_BLOCK_SIZE: Final = 512
# Loading the kernel costs more than it saves on the first bytes of a file.
KERNEL_AFTER_BYTES: Final = 2**20
_LARGE_FILE_BYTES: Final = 16 * 2**20
_FEW_LINE_BYTES: Final = 64
_MAX_HEAD_RECORDS: Final = 1000
_NUM_PARSERS: Final = 2
_MAX_BLOCK_SIZE: Final = 2**20


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_trace_record)
    return 0.5 + share / 2 if share else 0.0


def _is_trace_record(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("hash_ids"), list) and type(record.get("input_length")) is int


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    if file.layout == "document":
        yield from _read_document(file, options)
        return
    chunks = file.chunks()
    head: list[Chunk | LostLine] = []
    block_size = options.trace_block_size
    while block_size is None:
        chunk = next(chunks, None)
        if chunk is None:
            block_size = DEFAULT_BLOCK_SIZE
            break
        head.append(chunk)
        if isinstance(chunk, Chunk):
            block_size = _block_size_of(file, chunk.data)
    file.trace_block_size = block_size
    reader = _Reader(file, block_size)
    for item in reader.prepared(chain(head, chunks)):
        if isinstance(item, LostLine):
            yield lost(file, item)
        elif isinstance(item, _Parsed):
            yield from reader.requests(item)
        else:
            yield from reader.plainly(item)


def _encoded(record: Any) -> bytes:
    try:
        return orjson.dumps(record)
    except TypeError:  # a whole number of more than 64 bits: no sound record
        return b""


def _read_document(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    """Read a trace that is one JSON array: record by record, without the kernel."""
    records = json_records(file)
    head: list[Decoded | Skipped] = list(islice(records, _MAX_HEAD_RECORDS))
    block_size = options.trace_block_size
    if block_size is None:
        lines = [_encoded(item[1]) for item in head if isinstance(item, tuple)]
        block_size = _block_size_of(file, b"\n".join(lines)) or DEFAULT_BLOCK_SIZE
    file.trace_block_size = block_size
    parse = _Reader(file, block_size).parse_record
    for item in chain(head, records):
        if isinstance(item, Skipped):
            yield item
        else:
            yield from parsed(parse, item[1], item[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """A chunk whose lines the kernel has been through.

    Columns as `parse_lines` describes them, cut to the chunk's lines; ids are read-only uint64.
    """

    chunk: Chunk
    columns: NDArray[np.int64]
    times: NDArray[np.float64]
    bounds: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    ids: NDArray[np.uint64]


class _Reader:
    """Chunks of one file to requests, with or without the kernel."""

    def __init__(self, file: LogFile, block_size: int) -> None:
        self._file = file
        self._name = PurePath(file.path).name
        self._block_size = block_size

    def plainly(self, chunk: Chunk) -> Iterator[ReadItem]:
        """Read a chunk line by line with orjson."""
        lines = chunk.data.split(b"\n")
        tail = chunk.first_line + len(lines) - 1 if chunk.has_tail else None
        if tail is None:
            lines.pop()
        for place, line in enumerate(lines):
            number = chunk.first_line + place
            num_nul_bytes = 0 if place else chunk.num_nul_bytes
            yield from self._line(line, number, num_nul_bytes, number == tail)

    def prepared(self, chunks: Iterator[Chunk | LostLine]) -> Iterator[Chunk | LostLine | _Parsed]:
        """Yield the chunks; those behind the first ones are parsed by the kernel.

        The kernel releases the interpreter's lock, so that the next chunks are parsed by other
        threads meanwhile.
        """
        # A file known to be large goes through the kernel from its first line on.
        num_bytes = self._file.num_bytes or 0
        if num_bytes < _LARGE_FILE_BYTES:
            num_bytes = 0
        for chunk in chunks:
            if isinstance(chunk, Chunk) and num_bytes >= KERNEL_AFTER_BYTES:
                chunks = chain([chunk], chunks)
                break
            num_bytes += 0 if isinstance(chunk, LostLine) else len(chunk.data)
            yield chunk
        else:
            return
        with ThreadPoolExecutor(_NUM_PARSERS, thread_name_prefix="mooncake") as executor:
            coming: deque[Future[_Parsed] | LostLine] = deque()
            for chunk in chunks:
                if isinstance(chunk, LostLine):
                    coming.append(chunk)
                else:
                    coming.append(executor.submit(self.parse, chunk))
                if len(coming) > _NUM_PARSERS:
                    yield _done(coming.popleft())
            yield from map(_done, coming)

    def parse(self, chunk: Chunk) -> _Parsed:
        """Go through a chunk with the kernel."""
        from prefixaudit.logs._mooncake_kernels import parse_lines

        data = np.frombuffer(chunk.data, dtype=np.uint8)
        # An id takes a digit and a comma; pages that aren't written to cost nothing.
        ids = np.empty(len(data) // 2 + 1, dtype=np.int64)
        # Lines are rarely shorter than this; if they are, count them and parse once more.
        num_rows = len(data) // _FEW_LINE_BYTES + 1
        while True:
            columns = np.empty((num_rows, 4), dtype=np.int64)
            times = np.empty(num_rows, dtype=np.float64)
            bounds = np.empty((num_rows, 2), dtype=np.int64)
            accepted = np.empty(num_rows, dtype=np.uint8)
            num_lines, num_ids, num_bytes = parse_lines(
                data,
                self._file.options.max_line_bytes,
                columns,
                times,
                bounds,
                accepted,
                ids,
            )
            if num_bytes == len(data):
                break
            num_rows = chunk.num_newlines + 1
        chunk.known_newlines = num_lines - chunk.has_tail
        found = ids[:num_ids].view(np.uint64)
        found.flags.writeable = False
        return _Parsed(
            chunk=chunk,
            columns=columns[:num_lines],
            times=times[:num_lines],
            bounds=bounds[:num_lines],
            accepted=accepted[:num_lines].view(np.bool_),
            ids=found,
        )

    def requests(self, lines: _Parsed) -> Iterator[ReadItem]:
        """Make the requests of a parsed chunk; orjson reads what the kernel didn't take."""
        chunk = lines.chunk
        num_lines = len(lines.accepted)
        whole, partial = np.divmod(lines.columns[:, 0], self._block_size)
        num_ids = lines.columns[:, 3] - lines.columns[:, 2]
        fits = (num_ids == whole) | ((num_ids == whole + 1) & (partial > 0))
        is_plain = ~(lines.accepted & fits)
        is_plain[:1] |= chunk.num_nul_bytes > 0
        begin = 0
        for place in (*np.flatnonzero(is_plain).tolist(), num_lines):
            if place > begin:
                yield self._batch(lines, begin, place)
            begin = place + 1
            if place == num_lines:
                break
            start, end = lines.bounds[place].tolist()
            is_tail = place == num_lines - 1 and chunk.has_tail
            num_nul_bytes = 0 if place else chunk.num_nul_bytes
            number = chunk.first_line + place
            yield from self._line(chunk.data[start:end], number, num_nul_bytes, is_tail)

    def _batch(self, lines: _Parsed, begin: int, end: int) -> TraceBatch:
        """Return the requests of lines [begin, end) of a chunk, which are all sound."""
        self._file.num_records += end - begin
        columns = lines.columns[begin:end]
        return TraceBatch(
            path=self._file.path,
            name=self._name,
            block_size=self._block_size,
            line=np.arange(begin, end, dtype=np.int64) + lines.chunk.first_line,
            arrival_s=lines.times[begin:end] / 1000.0,
            num_prompt_tokens=columns[:, 0],
            num_output_tokens=columns[:, 1],
            hash_ids=lines.ids,
            first=columns[:, 2],
            end=columns[:, 3],
        )

    def _line(
        self, line: bytes, number: int, num_nul_bytes: int, is_tail: bool
    ) -> Iterator[ReadItem]:
        if not num_nul_bytes and len(line) <= self._file.options.max_line_bytes:
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                pass
            else:
                self._file.num_records += 1
                yield from parsed(self.parse_record, record, self._file.source(number))
                return
        for item in damaged_line(
            self._file, line, number, num_nul_bytes=num_nul_bytes, is_tail=is_tail
        ):
            if isinstance(item, Skipped):
                yield item
            else:
                yield from parsed(self.parse_record, item[1], item[0])

    def parse_record(self, record: Any, source: Source) -> tuple[Request | Skipped, ...]:
        if not isinstance(record, dict) or "hash_ids" not in record:
            raise RecordError("no-prompt", "the record has no `hash_ids`")
        input_length = known_count(record, "input_length")
        if not isinstance(input_length, int):
            raise RecordError("no-prompt", "the record has no `input_length` of 0 or more")
        ids = _hash_ids(record["hash_ids"])
        return (
            self._request(
                source,
                _milliseconds(record.get("timestamp")),
                input_length,
                known_count(record, "output_length"),
                ids,
                request_id=known_text(record, "request_id"),
                session_id=known_text(record, "session_id"),
            ),
        )

    def _request(
        self,
        source: Source,
        timestamp_ms: float | None,
        input_length: int,
        output_length: Known[int],
        ids: NDArray[np.uint64],
        *,
        request_id: Known[str] = UNKNOWN,
        session_id: Known[str] = UNKNOWN,
    ) -> Request | Skipped:
        size = self._block_size
        whole, partial = divmod(input_length, size)
        if len(ids) != whole and len(ids) != whole + (partial > 0):
            expected = f"{whole}" + (f" or {whole + 1}" if partial else "")
            return Skipped(
                source=source,
                kind="id-count",
                reason=f"`hash_ids` holds {len(ids)} ids for {input_length} tokens; "
                f"{expected} were expected for blocks of {size} tokens",
            )
        return Request(
            request_id=request_id if isinstance(request_id, str) else f"{self._name}:{source.line}",
            source=source,
            prompt=BlockHashes(hash_ids=ids, block_size=size, num_prompt_tokens=input_length),
            arrival_s=UNKNOWN if timestamp_ms is None else timestamp_ms / 1000.0,
            usage=Usage(num_completion_tokens=output_length),
            session_id=session_id,
        )


def _done(item: Future[_Parsed] | LostLine) -> _Parsed | LostLine:
    return item if isinstance(item, LostLine) else item.result()


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _hash_ids(value: Any) -> NDArray[np.uint64]:
    if not isinstance(value, list) or set(map(type, value)) - {int}:
        raise RecordError("bad-hash-ids", "`hash_ids` is not a list of whole numbers")
    if value and min(value) < 0:
        raise RecordError("bad-hash-ids", "`hash_ids` holds a negative number; ids are 0 or more")
    if value and max(value) >= 2**64:
        raise RecordError("bad-hash-ids", "`hash_ids` holds a number of more than 64 bits")
    ids = np.array(value, dtype=np.uint64)
    ids.flags.writeable = False
    return ids


def _block_size_of(file: LogFile, data: bytes) -> int | None:
    """Return the block size that the chunk's records fit; None where it has no sound record."""
    smallest, largest = 1, _MAX_BLOCK_SIZE
    num_records = 0
    for line in data.split(b"\n", 1000)[:1000]:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(record, dict) or not _is_trace_record(record):
            continue
        length = int(record["input_length"])
        num_ids = len(record["hash_ids"])
        if not num_ids or length < 1:
            continue
        num_records += 1
        # ids are length / size rounded down or up: length / (ids + 1) < size < length / (ids - 1).
        smallest = max(smallest, length // (num_ids + 1) + 1)
        if num_ids > 1:
            largest = min(largest, (length - 1) // (num_ids - 1))
    if not num_records:
        return None
    if smallest <= DEFAULT_BLOCK_SIZE <= largest:
        return DEFAULT_BLOCK_SIZE
    fitting = [1 << power for power in range(21) if smallest <= 1 << power <= largest]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        problem = f"fit blocks of {' or '.join(map(str, fitting))} tokens"
    elif smallest <= largest:
        problem = f"fit blocks of {smallest} to {largest} tokens"
    else:
        problem = "fit no block size"
    raise IncompleteError(
        f"{file.path}: the trace doesn't say its block size, and its first records {problem}",
        hint="name the number of tokens that a hash id stands for with --trace-block-size",
    )


FORMAT = LogFormat(
    title="Mooncake trace: hash ids of blocks",
    fields=("arrival_s", "hash_ids", "num_prompt_tokens", "num_completion_tokens", "session_id"),
    recognise=_recognise,
    read=_read,
)
