"""`inspect_logs`: what is in a log, without replaying it.

The files are read as one stream, as an analysis does, so that answers find their requests in other
files; with several `jobs` each file is read for itself.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import prefixaudit
from prefixaudit.analysis.inspecting_words import can_and_cannot
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity, field_kind
from prefixaudit.core.inspection import (
    Damage,
    FieldCoverage,
    InspectedFile,
    InspectedTimes,
    Inspection,
    Marked,
)
from prefixaudit.core.request import (
    BlockHashes,
    ChatMessages,
    LengthOnly,
    NotReplayable,
    RawText,
    Request,
    Skipped,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError, PrefixAuditError
from prefixaudit.logs import FoundFile, ReadOptions, find_files, read_logs
from prefixaudit.prompts.media import modality_of, num_characters

_MAX_VALUES: Final = 2**16
_LARGE_CHARACTERS: Final = 10**6
_FIRST: Final = 100
_FAR_S: Final = 31 * 86400.0
_KINDS: Final = {
    ChatMessages: "chat messages",
    RawText: "text",
    TokenIds: "token ids",
    BlockHashes: "block ids",
    LengthOnly: "length only",
}
# Beside the identity: what a request can know.
_FIELDS: Final[dict[str, tuple[str, Callable[[Request], Any]]]] = {
    "arrival_s": ("when the request came", lambda request: request.arrival_s),
    "session_id": ("conversation", lambda request: request.session_id),
    "endpoint": ("which API", lambda request: request.endpoint),
    "server": ("which server got it", lambda request: request.server),
    "answer": ("what was generated", lambda request: request.generated),
    "num_prompt_tokens": ("as the server counted", lambda r: r.usage.num_prompt_tokens),
    "num_cached_tokens": ("as the server reported", lambda r: r.usage.num_cached_tokens),
    "num_completion_tokens": ("as the server counted", lambda r: r.usage.num_completion_tokens),
}
_COUNTED: Final = ("session_id", "endpoint", "server")
_SHOWN: Final = ("endpoint", "server")


@dataclass(slots=True)
class _Column:
    num_present: int = 0
    num_absent: int = 0
    num_unknown: int = 0
    values: set[str] = field(default_factory=set)

    def add(self, value: Any, count: int = 1, *, counts_values: bool = True) -> None:
        if value is UNKNOWN:
            self.num_unknown += count
        elif value is None:
            self.num_absent += count
        else:
            self.num_present += count
            if counts_values and len(self.values) < _MAX_VALUES:
                self.values.add(str(value))

    def merge(self, other: _Column) -> None:
        self.num_present += other.num_present
        self.num_absent += other.num_absent
        self.num_unknown += other.num_unknown
        if len(self.values) < _MAX_VALUES:
            self.values |= other.values


@dataclass(slots=True)
class _Tally:
    """What was counted in some files; tallies of other files are merged in the files' order."""

    files: list[InspectedFile] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    num_requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    not_replayable: Counter[str] = field(default_factory=Counter)
    identities: Counter[Identity] = field(default_factory=Counter)
    columns: dict[str, _Column] = field(
        default_factory=lambda: {name: _Column() for name in _FIELDS}
    )
    headers: dict[str, _Column] = field(default_factory=dict)
    arrival_s: array[float] = field(default_factory=lambda: array("d"))
    skipped: dict[str, Damage] = field(default_factory=dict)
    repaired: Counter[str] = field(default_factory=Counter)
    marked: list[Marked] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    num_repeated_ids: int = 0
    num_media: int = 0
    num_large: int = 0
    largest_characters: int = 0

    def add(self, request: Request) -> None:
        prompt = request.prompt
        self.num_requests += 1
        if isinstance(prompt, NotReplayable):
            self.not_replayable[prompt.kind] += 1
            if self.not_replayable[prompt.kind] <= _FIRST:
                source = str(request.source)
                self.marked.append(Marked(kind=prompt.kind, source=source, num_bytes=0))
        else:
            self.kinds[_KINDS[type(prompt)]] += 1
        self.identities[request.identity] += 1
        for name, (_, value_of) in _FIELDS.items():
            value = value_of(request)
            self.columns[name].add(value, counts_values=name in _COUNTED)
        for name, value in request.headers.items():
            self.headers.setdefault(name, _Column()).add(value)
        if request.arrival_s is not UNKNOWN:
            self.arrival_s.append(request.arrival_s)
        # Of an id its hash is enough to tell that it came before; equal in all processes.
        key = _hash(request.request_id)
        if key in self.ids:
            self.num_repeated_ids += 1
        else:
            self.ids.add(key)
        self._look_at(prompt)

    def _look_at(self, prompt: Any) -> None:
        size = 0
        if isinstance(prompt, RawText):
            size = len(prompt.text)
        elif isinstance(prompt, TokenIds):
            self.num_media += len(prompt.media)
        elif isinstance(prompt, ChatMessages):
            for message in prompt.messages:
                content = message.get("content")
                size += num_characters(content)
                if isinstance(content, list):
                    self.num_media += sum(modality_of(part) is not None for part in content)
        if size >= _LARGE_CHARACTERS:
            self.num_large += 1
        self.largest_characters = max(self.largest_characters, size)

    def skip(self, item: Skipped) -> None:
        known = self.skipped.get(item.kind)
        self.skipped[item.kind] = Damage(
            kind=item.kind,
            num_records=1 + (0 if known is None else known.num_records),
            first=str(item.source) if known is None else known.first,
            reason=item.reason if known is None else known.reason,
            sources=(str(item.source),)
            if known is None
            else (*known.sources, str(item.source))
            if len(known.sources) < _FIRST
            else known.sources,
        )

    def merge(self, other: _Tally) -> None:
        self.files += other.files
        self.ignored += other.ignored
        self.num_requests += other.num_requests
        for name in ("kinds", "not_replayable", "identities", "repaired"):
            getattr(self, name).update(getattr(other, name))
        for name, column in other.columns.items():
            self.columns[name].merge(column)
        for name, column in other.headers.items():
            self.headers.setdefault(name, _Column()).merge(column)
        self.arrival_s.extend(other.arrival_s)
        self.num_repeated_ids += other.num_repeated_ids + len(self.ids & other.ids)
        self.ids |= other.ids
        for kind, damage in other.skipped.items():
            known = self.skipped.get(kind)
            self.skipped[kind] = Damage(
                kind=kind,
                num_records=damage.num_records + (0 if known is None else known.num_records),
                first=damage.first if known is None else known.first,
                reason=damage.reason if known is None else known.reason,
                sources=(*(() if known is None else known.sources), *damage.sources)[:_FIRST],
            )
        self.marked += other.marked
        self.num_media += other.num_media
        self.num_large += other.num_large
        self.largest_characters = max(self.largest_characters, other.largest_characters)


def inspect_logs(
    paths: Sequence[str], options: ReadOptions | None = None, *, jobs: int = 1
) -> Inspection:
    """Return what is in some logs; a file that can't be read is one with a `problem`.

    Several `jobs` read several files side by side, each for itself.
    Raises UsageError for names that stand for nothing, IncompleteError where nothing can be read.
    """
    options = options or ReadOptions()
    found = find_files(paths)
    groups = [[file] for file in found]
    jobs = min(len(groups), jobs)
    if jobs <= 1:
        tally = _tallied(found, options)
    else:
        tally = _Tally()
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
            for part in pool.map(_tallied, groups, [options] * len(groups)):
                tally.merge(part)
    if all(file.problem is not None for file in tally.files):
        problems = "; ".join(f"{f.path}: {f.problem}" for f in tally.files) or "no file is a log"
        raise IncompleteError(problems)
    return _inspection(tally)


def _tallied(group: Sequence[FoundFile], options: ReadOptions) -> _Tally:
    tally = _Tally()
    readable = []
    for place in group:
        try:
            read_logs([place.path], options)  # opens it and recognises its format
        except PrefixAuditError as error:
            reason = str(error).removeprefix(f"{place.path}: ")
            if place.folder is not None and not place.looks_like_a_log:
                tally.ignored.append(place.path)
            else:
                tally.files.append(_unread(place.path, reason))
        else:
            readable.append(place.path)
    if readable:
        _read(readable, options, tally)
    return tally


def _read(paths: Sequence[str], options: ReadOptions, tally: _Tally) -> None:
    stream = read_logs(paths, options)
    num_requests: Counter[str] = Counter()
    num_skipped: Counter[str] = Counter()
    try:
        for item in stream:
            if isinstance(item, Skipped):
                num_skipped[item.source.path] += 1
                tally.skip(item)
            else:
                num_requests[item.source.path] += 1
                tally.add(item)
    except IncompleteError:
        # A file of engine lines or metrics alone has no records, and is worth being shown.
        if not stream.readings and not stream.pool_readings:
            raise
    for file in stream.files:
        tally.repaired.update(file.num_repaired)
        tally.marked += [
            Marked(kind=mark.kind, source=str(mark.source), num_bytes=mark.num_bytes)
            for mark in (*file.repairs, *file.marks)
        ]
        tally.files.append(
            InspectedFile(
                path=file.path,
                format=file.format_name,
                claims=tuple(file.claims.items()),
                encoding=file.encoding,
                compression=file.compression,
                num_bytes=file.num_bytes,
                num_records=file.num_records,
                num_requests=num_requests[file.path],
                num_skipped=num_skipped[file.path],
                num_set_aside=sum(file.set_aside.values()),
                num_other_lines=file.num_other_lines,
                num_readings=len(file.readings) + len(file.pool_readings),
                notes=tuple(file.notes),
            )
        )


def _unread(path: str, problem: str) -> InspectedFile:
    return InspectedFile(
        path=path,
        format=None,
        claims=(),
        encoding=None,
        compression=None,
        num_bytes=None,
        num_records=0,
        num_requests=0,
        num_skipped=0,
        num_set_aside=0,
        num_other_lines=0,
        num_readings=0,
        problem=problem,
    )


def _inspection(tally: _Tally) -> Inspection:
    fields = tuple(_coverage(tally))
    times = _times(tally)
    can, cannot = can_and_cannot(
        num_requests=tally.num_requests,
        kinds=tally.kinds,
        not_replayable=tally.not_replayable,
        fields={item.field: item for item in fields},
        times=times,
        headers={name: len(column.values) for name, column in tally.headers.items()},
        num_media=tally.num_media,
        num_readings=sum(file.num_readings for file in tally.files),
    )
    return Inspection(
        version=prefixaudit.__version__,
        files=tuple(tally.files),
        ignored_files=tuple(tally.ignored),
        num_requests=tally.num_requests,
        prompt_kinds=tuple(tally.kinds.most_common()),
        not_replayable=tuple(tally.not_replayable.most_common()),
        fields=fields,
        headers=tuple(sorted((name, len(c.values)) for name, c in tally.headers.items())),
        times=times,
        skipped=tuple(sorted(tally.skipped.values(), key=lambda damage: -damage.num_records)),
        repaired=tuple(tally.repaired.most_common()),
        marked=tuple(tally.marked),
        num_repeated_ids=tally.num_repeated_ids,
        num_media=tally.num_media,
        num_large=tally.num_large,
        largest_characters=tally.largest_characters,
        can=can,
        cannot=cannot,
    )


def _coverage(tally: _Tally) -> Iterator[FieldCoverage]:
    for name, (about, _) in _FIELDS.items():
        yield _covered(name, about, tally.columns[name], is_shown=name in _SHOWN)
    for name in IDENTITY_FIELDS:
        column = _Column()
        for identity, count in tally.identities.items():
            column.add(getattr(identity, name), count)
        about = str(Identity.__dataclass_fields__[name].metadata["about"])
        yield _covered(name, about, column, is_shown=field_kind(name) == "content")


def _covered(name: str, about: str, column: _Column, *, is_shown: bool) -> FieldCoverage:
    is_constant = len(column.values) == 1 and not column.num_absent and not column.num_unknown
    return FieldCoverage(
        field=name,
        about=about,
        num_present=column.num_present,
        num_absent=column.num_absent,
        num_unknown=column.num_unknown,
        num_values=len(column.values),
        is_bounded=len(column.values) >= _MAX_VALUES,
        constant=next(iter(column.values)) if is_constant and is_shown else None,
    )


def _times(tally: _Tally) -> InspectedTimes:
    times = np.frombuffer(tally.arrival_s, dtype=np.float64) if tally.arrival_s else np.empty(0)
    if not len(times):
        return InspectedTimes(num_known=0, first_s=None, last_s=None, num_backwards=0, num_far=0)
    return InspectedTimes(
        num_known=len(times),
        first_s=float(times.min()),
        last_s=float(times.max()),
        num_backwards=int((np.diff(times) < 0).sum()),
        num_far=int((np.abs(times - np.median(times)) > _FAR_S).sum()),
    )


def _hash(text: str) -> int:
    import xxhash

    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
