"""From logs to a BlockTrace: reads, completes, replays and adds, and counts what happens.

Streaming: of a request only numbers are kept. Every item of the log becomes one row, a request or
a skipped record, so that nothing is lost between reading and the report.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prefixaudit.analysis.reporting_servers import UsageRows
from prefixaudit.analysis.sizing import block_size_of
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.reading import EngineReading
from prefixaudit.core.report import Agreement, BlockSizeOrigin, ReadFile
from prefixaudit.core.reported import UsageColumns
from prefixaudit.core.request import BlockHashes, Request, Skipped, TokenIds
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import LogStream, Repair
from prefixaudit.prompts import Replayer, ReplayRun, ReplayStatistics

if TYPE_CHECKING:
    from prefixaudit.analysis.auditing import Auditing
    from prefixaudit.analysis.reasons import Reasons
    from prefixaudit.analysis.warming import Warming

_PROGRESS_REQUESTS = 64
_NOT_REPORTED = -1


class Progress(Protocol):
    """Told now and then how far the run is; may draw, must not raise."""

    def update(
        self, num_bytes: int, num_bytes_total: int | None, num_requests: int, num_tokens: int
    ) -> None: ...

    def stage(self, name: str) -> None: ...


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


class _Remembered:
    """Completes requests on their way into the replay, and remembers them until they come out."""

    def __init__(self, items: Iterable[Request | Skipped], deployment: Deployment) -> None:
        self._items = items
        self._complete = deployment.complete
        self.waiting: deque[Request | None] = deque()

    def __iter__(self) -> Iterator[Request | Skipped]:
        for item in self._items:
            if isinstance(item, Skipped):
                self.waiting.append(None)
                yield item
            else:
                request = self._complete(item)
                self.waiting.append(request)
                yield request


class IdReplay:
    """Replays a log of block ids: nothing is rendered or encoded, so nothing is spent on it.

    Other prompts between them go to the replayer. `statistics` are its.
    """

    def __init__(self, items: Iterable[Request | Skipped], replayer: Replayer) -> None:
        self._items = items
        self._replayer = replayer

    @property
    def statistics(self) -> ReplayStatistics:
        return self._replayer.statistics

    def __iter__(self) -> Iterator[Prompt | Skipped]:
        for item in self._items:
            if isinstance(item, Skipped):
                yield item
            elif isinstance(item.prompt, BlockHashes):
                yield Prompt(
                    request=item,
                    tokens=item.prompt,
                    num_prompt_tokens=item.prompt.num_prompt_tokens,
                    generated_token_ids=UNKNOWN,
                )
            else:
                yield self._replayer.replay(item)


def gather(
    stream: LogStream,
    deployment: Deployment,
    replay: Callable[[Iterable[Request | Skipped]], ReplayRun | IdReplay],
    *,
    cache_generated: bool,
    progress: Progress,
    auditing: Auditing | None = None,
    reasons: Reasons | None = None,
    warming: Warming | None = None,
) -> Gathered:
    """Read the log to its end and return its trace; `trace` is None where nothing was replayed.

    `auditing`, `reasons` and `warming` are shown every prompt that the trace takes.
    """
    builder: TraceBuilder | None = None
    block_size, origin = choose_block_size(deployment, None)
    trace_blocks = False
    rows = Rows(
        path=array("i"), line=array("q"), position=array("q"), paths={}, skipped_request_ids={}
    )
    skipped: list[Skipped] = []
    reported_cached = array("q")
    usage_rows = UsageRows()
    lengths = Compared()
    forks: Counter[tuple[int, int]] = Counter()
    num_tokens = num_with_answer = num_by_length = num_approximate = num_requests = 0

    def skip(item: Skipped, request: Request | None) -> None:
        if request is not None:
            rows.skipped_request_ids[len(rows)] = request.request_id
            usage_rows.add(request, len(rows), -1)
        rows.add(item, -1 - len(skipped))
        skipped.append(item)

    remembered = _Remembered(stream, deployment)
    run = replay(remembered)
    for prompt in run:
        origin_request = remembered.waiting.popleft()
        if isinstance(prompt, Skipped):
            skip(prompt, origin_request)
            continue
        request = prompt.request
        if builder is None:
            trace_blocks = isinstance(prompt.tokens, BlockHashes)
            block_size, origin = choose_block_size(deployment, prompt)
            builder = TraceBuilder(block_size=block_size, cache_generated=cache_generated)
            if auditing is not None:
                auditing.start(block_size)
            if warming is not None:
                warming.start(block_size, prompt, cache_generated=cache_generated)
        try:
            builder.add(prompt, len(rows))
        except IncompleteError as error:
            reason = str(error).removeprefix(f"{request.source}: ")
            skip(Skipped(source=request.source, kind="unfit-blocks", reason=reason), request)
            continue
        if auditing is not None:
            auditing.add(prompt, len(rows))
        if reasons is not None:
            reasons.add(prompt)
        if warming is not None:
            warming.add(prompt, len(rows))
        usage_rows.add(request, len(rows), num_requests, is_approximate=prompt.is_approximate)
        rows.add(request, num_requests)
        num_requests += 1
        num_tokens += prompt.num_prompt_tokens
        usage = request.usage
        reported = usage.num_cached_tokens
        reported_cached.append(reported if isinstance(reported, int) else _NOT_REPORTED)
        expected = usage.num_prompt_tokens
        is_text = not isinstance(request.prompt, BlockHashes | TokenIds)
        if isinstance(expected, int) and is_text and not prompt.is_approximate:
            lengths.add(prompt.num_prompt_tokens, expected)
        if request.num_samples > 1:
            forks[prompt.num_prompt_tokens, request.num_samples] += 1
        if prompt.is_approximate:
            num_approximate += 1
        if prompt.generated_token_ids is not UNKNOWN:
            num_with_answer += 1
        elif isinstance(usage.num_completion_tokens, int):
            num_by_length += 1
        if not num_requests % _PROGRESS_REQUESTS:
            progress.update(stream.num_bytes_read, stream.num_bytes_total, num_requests, num_tokens)
    progress.stage("building the block tree")
    return Gathered(
        files=tuple(
            ReadFile(
                path=file.path,
                format=file.format_name or "empty",
                num_bytes=file.num_bytes,
                encoding=file.encoding,
            )
            for file in stream.files
        ),
        num_records=stream.num_records,
        num_repaired=stream.num_repaired,
        ignored_files=tuple(file.path for file in stream.ignored_files),
        replay=run.statistics,
        trace=builder.finish() if builder is not None and num_requests else None,
        rows=rows,
        skipped=tuple(skipped),
        block_size=block_size,
        block_size_origin=origin,
        trace_blocks=trace_blocks,
        reported_cached_tokens=reported_cached,
        prompt_lengths=lengths,
        num_with_answer=num_with_answer,
        num_without_answer=num_requests - num_with_answer,
        num_answers_by_length_only=num_by_length,
        num_approximate=num_approximate,
        forks=forks,
        usage=usage_rows.columns(),
        readings=stream.readings,
        repairs=stream.repairs,
        num_marked=stream.num_marked,
        marks=stream.marks,
        log_notes=tuple(dict.fromkeys(note for file in stream.files for note in file.notes)),
    )


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
        reported_cached_tokens=array("q", [_NOT_REPORTED]) * num_requests,
        prompt_lengths=Compared(),
        num_with_answer=num_with_answer,
        num_without_answer=num_requests - num_with_answer,
        num_answers_by_length_only=0,
        num_approximate=0,
        forks={},
    )


def choose_block_size(deployment: Deployment, first: Prompt | None) -> tuple[int, BlockSizeOrigin]:
    """Return the block size to hash in, and who said so.

    A trace of block ids can only be read in its own blocks; others in those of the deployment.
    """
    if first is not None and isinstance(first.tokens, BlockHashes):
        return first.tokens.block_size, "trace"
    return block_size_of(deployment)
