"""What is known once a log was read: the trace, a row an item of the log, and counts."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prefixaudit.core.reading import EngineReading
from prefixaudit.core.report import Agreement, BlockSizeOrigin, ReadFile
from prefixaudit.core.reported import UsageColumns
from prefixaudit.core.request import Request, Skipped
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.logs import Repair
from prefixaudit.prompts import ReplayStatistics

NOT_REPORTED = -1


class Compared:
    """Counts of replayed against reported figures."""

    def __init__(self) -> None:
        self.num_equal = self.num_more = self.num_less = 0
        self.reported_tokens = self.replayed_tokens = 0

    def add(self, replayed: int, reported: int) -> None:
        self.replayed_tokens += replayed
        self.reported_tokens += reported
        if replayed == reported:
            self.num_equal += 1
        elif replayed > reported:
            self.num_more += 1
        else:
            self.num_less += 1

    def agreement(self) -> Agreement | None:
        """Return the counts, None where nothing could be compared."""
        num_compared = self.num_equal + self.num_more + self.num_less
        if not num_compared:
            return None
        return Agreement(
            num_compared=num_compared,
            num_equal=self.num_equal,
            num_more=self.num_more,
            num_less=self.num_less,
            reported_tokens=self.reported_tokens,
            replayed_tokens=self.replayed_tokens,
        )


@dataclass(kw_only=True)
class Rows:
    """One entry for every request or skipped record, in log order (see core.report.RequestRows)."""

    path: array[int]
    line: array[int]
    position: array[int]
    paths: dict[str, int]
    skipped_request_ids: dict[int, str]

    def add(self, item: Request | Skipped, position: int) -> None:
        source = item.source
        number = self.paths.setdefault(source.path, len(self.paths))
        self.path.append(number)
        self.line.append(source.line)
        self.position.append(position)

    def add_batch(self, batch: TraceBatch, position: int) -> None:
        number = self.paths.setdefault(batch.path, len(self.paths))
        self.path.extend([number] * len(batch))
        self.line.extend(batch.line.tolist())
        self.position.extend(range(position, position + len(batch)))

    def __len__(self) -> int:
        return len(self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """All that was learned on the way from the logs to the trace.

    `forks` counts the requests of several samples by (prompt tokens, samples).
    """

    files: tuple[ReadFile, ...]
    num_records: int
    num_repaired: Mapping[str, int]
    ignored_files: tuple[str, ...]
    replay: ReplayStatistics
    trace: BlockTrace | None
    rows: Rows
    skipped: tuple[Skipped, ...]
    block_size: int
    block_size_origin: BlockSizeOrigin
    trace_blocks: bool
    reported_cached_tokens: array[int]
    prompt_lengths: Compared
    num_with_answer: int
    num_without_answer: int
    num_answers_by_length_only: int
    num_approximate: int
    forks: Mapping[tuple[int, int], int]
    usage: UsageColumns | None = None
    readings: tuple[EngineReading, ...] = ()
    log_notes: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    num_marked: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[Repair, ...] = ()


def from_trace_file(path: Path) -> Gathered:
    """Return what `prefixaudit export` wrote as if it had been read from the log.

    What the export left out (answers' texts, the server's figures, skipped records) isn't known.
    Raises IncompleteError for a broken file.
    """
    from prefixaudit.chain.export import read_trace

    trace = read_trace(path)
    num_requests = trace.num_requests
    num_with_answer = int((trace.num_generated_tokens > 0).sum())
    return Gathered(
        files=(
            ReadFile(path=str(path), format="prefixaudit-trace", num_bytes=path.stat().st_size),
        ),
        num_records=num_requests,
        num_repaired={},
        ignored_files=(),
        replay=ReplayStatistics(),
        trace=trace if num_requests else None,
        rows=Rows(
            path=array("i", bytes(4 * num_requests)),
            line=array("q", range(1, num_requests + 1)),
            position=array("q", range(num_requests)),
            paths={str(path): 0},
            skipped_request_ids={},
        ),
        skipped=(),
        block_size=trace.block_size,
        block_size_origin="trace",
        trace_blocks=bool(trace.has_partial_id.any()),
        reported_cached_tokens=array("q", [NOT_REPORTED]) * num_requests,
        prompt_lengths=Compared(),
        num_with_answer=num_with_answer,
        num_without_answer=num_requests - num_with_answer,
        num_answers_by_length_only=0,
        num_approximate=0,
        forks={},
    )
