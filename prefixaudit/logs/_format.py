"""The member type of this package, and how a file's format is recognised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import Request, Skipped
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._options import ReadOptions
from prefixaudit.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A record that holds an answer, or what the server counted, and not the prompt.

    It is joined to the request of the same id in any of the files. `request` is what it stands for
    where there is none: its prompt is NotReplayable, and says why.
    """

    request: Request


@dataclass(frozen=True, slots=True)
class Aside:
    """A record that is no request of its own, of a kind to count by; nothing is lost with it."""

    kind: str


ReadItem: TypeAlias = Request | Skipped | Answer | Aside | TraceBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The start of a file: its first lines, and those of them that are JSON, decoded.

    `head` are the first bytes of its content, by which binary formats are known.
    """

    path: str
    lines: tuple[bytes, ...]
    records: tuple[Any, ...]
    head: bytes = b""

    def share_of_records(self, matches: Callable[[dict[str, Any]], bool]) -> float:
        """Return which share of the decoded records are objects that match, in 0..1."""
        hits = sum(isinstance(record, dict) and matches(record) for record in self.records)
        return hits / len(self.records) if self.records else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A log format.

    title      what it is, in a few words
    fields     what a request read from it can know, by the names of Request and Identity
    recognise  how surely a sample is of this format: 0 is not, 1 is certain. A record of it
               between records that are damaged or of other kinds is enough for more than 0.
    read       the file's requests and skips. It counts each physical record in
               `file.num_records`, and each gives at least one Request, or exactly one Skipped,
               Answer or Aside. A TraceBatch is as many Requests, as columns.
    looks_back says that requests need what may stand behind them or in another file (answers,
               traces of observations): such a file is read twice, the first time for its Answers
               and for what `read` remembers in `file.memory`.
    """

    title: str
    fields: tuple[str, ...]
    recognise: Callable[[Sample], float]
    read: Callable[[LogFile, ReadOptions], Iterator[ReadItem]]
    looks_back: Callable[[Sample], bool] = lambda _: False


LOG_FORMATS: Final = Registry[LogFormat](
    kind="log format", package="prefixaudit.logs", attribute="FORMAT"
)
