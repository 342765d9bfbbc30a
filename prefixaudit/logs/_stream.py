"""read_logs: from names of files to one stream of requests and skips, with nothing lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import orjson

from prefixaudit.core.reading import EngineReading, PoolReading
from prefixaudit.core.request import Request, Skipped, Source
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.errors import IncompleteError, UsageError
from prefixaudit.logs._bytes import Blocks, DamagedStreamError
from prefixaudit.logs._documents import elements, is_document
from prefixaudit.logs._file import LogFile, Repair, damaged
from prefixaudit.logs._format import LOG_FORMATS, Answer, Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._joining import Answers
from prefixaudit.logs._lines import LostLine, chunks_of_lines
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._paths import FoundFile, find_files

_SAMPLE_RECORDS: Final = 50
_SAMPLE_LINES: Final = 2000
_HEAD_BYTES: Final = 4096
_LAYOUT_BYTES: Final = 2**16
_SAMPLE_BYTES: Final = 2**22
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05](?:\x95|[\]}(cq])")


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredFile:
    """A file of a folder that is no log by name or content: a README, a model's configuration …"""

    path: str
    reason: str


class LogStream:
    """Requests and skips of all files, in the order of the files and their lines.

    The counts grow while it is iterated. It can be iterated once. `batches` leaves requests that
    come as columns together; iterating the stream itself gives each of them.
    """

    def __init__(
        self,
        files: Sequence[tuple[LogFile, LogFormat | None]],
        lost: Sequence[Skipped],
        ignored: Sequence[IgnoredFile],
        options: ReadOptions,
    ) -> None:
        self._files = tuple(files)
        self._lost = tuple(lost)
        self._options = options
        self._started = False
        self.files = tuple(file for file, _ in files)
        self.ignored_files = tuple(ignored)

    def __iter__(self) -> Iterator[Request | Skipped]:
        return one_by_one(self.batches())

    def batches(self) -> Iterator[Request | Skipped | TraceBatch]:
        """Yield what iterating the stream does, but requests that came as columns together."""
        assert not self._started, "a log stream can be read once"
        self._started = True
        answers = Answers()
        held = self._first_pass(answers)
        for file, log_format in self._files:
            if log_format is None:
                continue
            items = held.pop(file, None)
            for item in log_format.read(file, self._options) if items is None else items:
                if isinstance(item, Request):
                    yield answers.joined(item)
                elif isinstance(item, Skipped):
                    yield item
                elif isinstance(item, TraceBatch):
                    if answers:
                        yield from map(answers.joined, item.requests())
                    else:
                        yield item
                elif isinstance(item, Aside):
                    file.set_aside[item.kind] += 1
                elif not file.looks_back:
                    answers.add(file, item)
        yield from answers.left_over()
        yield from self._lost
        if not self.num_records:
            names = ", ".join(file.path for file in self.files)
            if self.readings or self.pool_readings:
                raise IncompleteError(
                    f"{names}: no requests, only what an engine says of its cache; "
                    "request records were expected",
                    hint="name the log of the requests beside it",
                )
            raise IncompleteError(f"{names}: no records; request records were expected")

    def _first_pass(self, answers: Answers) -> dict[LogFile, list[ReadItem]]:
        """Collect answers from files that look back; return all items of those that are pipes."""
        held: dict[LogFile, list[ReadItem]] = {}
        memory: dict[str, Any] = {}
        for file, _ in self._files:
            file.memory = memory
        for file, log_format in self._files:
            if log_format is None or not file.looks_back:
                continue
            twin = file.again()
            if twin is None:
                held[file] = list(log_format.read(file, self._options))
            for item in held[file] if twin is None else log_format.read(twin, self._options):
                if isinstance(item, Answer):
                    answers.add(file, item)
        return held

    @property
    def num_records(self) -> int:
        """Physical records seen so far; files of a folder that can't be read count as one."""
        lost = len(self._lost) if self._started else 0
        return lost + sum(file.num_records for file in self.files)

    @property
    def num_bytes_read(self) -> int:
        """Bytes read so far, as they lie on disk."""
        return sum(file.num_bytes_read for file in self.files)

    @property
    def num_bytes_total(self) -> int | None:
        """Bytes of all files on disk; None where one is a pipe."""
        sizes = [file.num_bytes for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def readings(self) -> tuple[EngineReading, ...]:
        """What engines said of their caches so far, in the order of the files and their lines."""
        return tuple(reading for file in self.files for reading in file.readings)

    @property
    def pool_readings(self) -> tuple[PoolReading, ...]:
        """What engines said of their pools at start-up so far."""
        return tuple(reading for file in self.files for reading in file.pool_readings)

    @property
    def set_aside(self) -> dict[str, int]:
        """Records that are no request of their own so far, by kind."""
        kinds = sorted({kind for file in self.files for kind in file.set_aside})
        return {kind: sum(file.set_aside[kind] for file in self.files) for kind in kinds}

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The first repairs of each file."""
        return tuple(repair for file in self.files for repair in file.repairs)

    @property
    def num_marked(self) -> dict[str, int]:
        """Sound lines to know of so far, by kind (see LogFile)."""
        kinds = sorted({kind for file in self.files for kind in file.num_marked})
        return {kind: sum(file.num_marked[kind] for file in self.files) for kind in kinds}

    @property
    def marks(self) -> tuple[Repair, ...]:
        """The first of them in each file."""
        return tuple(mark for file in self.files for mark in file.marks)

    @property
    def num_repaired(self) -> dict[str, int]:
        """Repairs so far by kind: damage that cost no record."""
        kinds = sorted({kind for file in self.files for kind in file.num_repaired})
        return {kind: sum(file.num_repaired[kind] for file in self.files) for kind in kinds}


def one_by_one(items: Iterable[Request | Skipped | TraceBatch]) -> Iterator[Request | Skipped]:
    """Yield the requests of batches each for itself, everything else as it is."""
    for item in items:
        if isinstance(item, TraceBatch):
            yield from item.requests()
        else:
            yield item


def read_logs(paths: Sequence[str], options: ReadOptions | None = None) -> LogStream:
    """Open logs and recognise their formats; iterating the result reads them.

    Raises UsageError for names that stand for nothing, an unknown `log_format` or a folder
    without logs, IncompleteError for a file that can't be read, isn't recognised or is empty.
    """
    options = options or ReadOptions()
    wanted_name = options.log_format or ("mapped" if options.field_map else None)
    wanted = LOG_FORMATS[wanted_name] if wanted_name is not None else None
    files: list[tuple[LogFile, LogFormat | None]] = []
    lost: list[Skipped] = []
    ignored: list[IgnoredFile] = []
    found = find_files(paths)
    for place in found:
        try:
            files.append(_opened(place, wanted, options))
        except IncompleteError as error:
            if place.folder is None:
                raise
            reason = str(error).removeprefix(f"{place.path}: ")
            if place.looks_like_a_log:
                source = Source(place.path, 1)
                lost.append(Skipped(source=source, kind="unreadable-file", reason=reason))
            else:
                ignored.append(IgnoredFile(path=place.path, reason=reason))
    if not files:
        folders = ", ".join(sorted({file.folder for file in found if file.folder is not None}))
        raise UsageError(
            f"{folders}: none of the {len(found)} files in the folder is a log; "
            f"known formats: {', '.join(LOG_FORMATS)}"
        )
    if all(log_format is None for _, log_format in files) and not lost:
        names = ", ".join(file.path for file, _ in files)
        raise IncompleteError(f"{names}: the file is empty; request records were expected")
    return LogStream(files, lost, ignored, options)


def _opened(
    place: FoundFile, wanted: LogFormat | None, options: ReadOptions
) -> tuple[LogFile, LogFormat | None]:
    if wanted is not None and place.folder is not None and not place.may_be_a_log:
        raise IncompleteError(f"{place.path}: the name isn't that of a log")
    file = LogFile(place.path, options)
    sample, is_empty = _sample(file)
    if is_empty:
        return file, None
    if _PICKLE.match(sample.head):
        # SGLang's request and crash dumps. Loading one runs whatever its writer put into it.
        raise IncompleteError(
            f"{file.path}: a pickle file, which is never loaded: that could run any code",
            hint="let the server log its requests as JSON, or convert the dump where it is trusted",
        )
    file.head = sample.head
    name = options.log_format or ("mapped" if options.field_map else "")
    if not name:
        file.claims = claims_of(sample)
        name = recognise(sample, file.claims)
    file.format_name = name
    log_format = wanted or LOG_FORMATS[name]
    file.looks_back = log_format.looks_back(sample)
    return file, log_format


def claims_of(sample: Sample) -> dict[str, float]:
    """Return how surely each format claims the sample, the surest first; 0 is left out."""
    claims = {name: log_format.recognise(sample) for name, log_format in LOG_FORMATS.items()}
    ordered = sorted(claims.items(), key=lambda item: -item[1])
    return {name: confidence for name, confidence in ordered if confidence > 0}


def recognise(sample: Sample, claims: Mapping[str, float] | None = None) -> str:
    """Return the name of the format that claims the sample most surely.

    Raises IncompleteError, naming the file and the known formats, where none does.
    """
    claims = claims_of(sample) if claims is None else claims
    if not claims:
        raise IncompleteError(
            f"{sample.path}: no log format recognises the file ({len(sample.lines)} lines looked "
            f"at, {len(sample.records)} of them JSON); known formats: {', '.join(LOG_FORMATS)}",
            hint="name the format with --log-format",
        )
    return next(iter(claims))


def _sample(file: LogFile) -> tuple[Sample, bool]:
    """Return the file's first records, and whether it holds nothing at all; note its layout."""
    blocks = file.peek()
    head, is_whole, blocks = _head(blocks)
    if is_document(head, is_whole=is_whole):
        file.layout = "document"
        return _document_sample(file, head, blocks)
    lines: list[bytes] = []
    records: list[Any] = []
    is_empty = True
    start = b""
    for chunk in chunks_of_lines(blocks, file.options.max_line_bytes):
        if isinstance(chunk, LostLine):
            is_empty = False
            continue
        is_empty = is_empty and not chunk.num_nul_bytes and not chunk.data.strip()
        start = start or chunk.data[:_HEAD_BYTES]
        for line in chunk.data.split(b"\n", _SAMPLE_LINES):
            if len(lines) >= _SAMPLE_LINES or len(records) >= _SAMPLE_RECORDS:
                break
            content = line.strip(b"\0 \t\r\n").removeprefix(b"\xef\xbb\xbf")
            if not content:
                continue
            lines.append(content)
            try:
                records.append(orjson.loads(content))
            except orjson.JSONDecodeError:
                continue
        if records or len(lines) >= _SAMPLE_LINES:
            break
    sample = Sample(path=file.path, lines=tuple(lines), records=tuple(records), head=start)
    return sample, is_empty


def _head(blocks: Blocks) -> tuple[bytes, bool, Blocks]:
    """Return the first bytes, whether they are all there are, and all blocks again."""
    head = b""
    try:
        for block in blocks:
            head += block
            if len(head) >= _LAYOUT_BYTES:
                return head, False, chain([head], blocks)
    except DamagedStreamError as damage:
        return head, False, chain([head] if head else [], damaged(damage))
    return head, True, iter([head] if head else [])


def _document_sample(file: LogFile, head: bytes, blocks: Blocks) -> tuple[Sample, bool]:
    records: list[Any] = []
    num_bytes = 0
    for element in elements(blocks, file.options.max_line_bytes):
        if isinstance(element, LostLine):
            continue
        num_bytes += len(element.data)
        try:
            records.append(orjson.loads(element.data))
        except orjson.JSONDecodeError:
            continue
        if len(records) >= _SAMPLE_RECORDS or num_bytes >= _SAMPLE_BYTES:
            break
    start = head[:_HEAD_BYTES]
    lines = tuple(line for line in map(bytes.strip, start.split(b"\n")) if line)
    return Sample(path=file.path, lines=lines, records=tuple(records), head=start), False
