"""From logs to a BlockTrace: reads, completes, replays and adds, and counts what happens.

Streaming: of a request only numbers are kept. Every item of the log becomes one row, a request or
a skipped record, so that nothing is lost between reading and the report.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeAlias

from prefixaudit.analysis.gathered import NOT_REPORTED, Compared, Gathered, Rows
from prefixaudit.analysis.reporting_servers import UsageRows
from prefixaudit.analysis.sizing import block_size_of, choose_block_size
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.report import ReadFile
from prefixaudit.core.request import BlockHashes, Request, Skipped, TokenIds
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import LogStream, one_by_one
from prefixaudit.prompts import ReplayStatistics

if TYPE_CHECKING:
    from prefixaudit.analysis.auditing import Auditing
    from prefixaudit.analysis.reasons import Reasons
    from prefixaudit.analysis.warming import Warming
    from prefixaudit.prompts import Replayer, ReplayRun

LogItem: TypeAlias = Request | Skipped | TraceBatch

_PROGRESS_REQUESTS = 64


class Progress(Protocol):
    """Told now and then how far the run is; may draw, must not raise."""

    def update(
        self, num_bytes: int, num_bytes_total: int | None, num_requests: int, num_tokens: int
    ) -> None: ...

    def stage(self, name: str) -> None: ...


class Replay(Protocol):
    """Replays the items of a log; `first` is the first request among them."""

    def __call__(
        self, items: Iterable[LogItem], first: Request | TraceBatch | None
    ) -> ReplayRun | IdReplay: ...


class _Remembered:
    """Completes requests on their way into the replay, and remembers them until they come out.

    Batches pass as they are, completed, where the deployment says the same of all their requests.
    """

    def __init__(self, items: Iterable[LogItem], deployment: Deployment) -> None:
        self._items = items
        self._deployment = deployment
        self.waiting: deque[Request | None] = deque()

    def __iter__(self) -> Iterator[LogItem]:
        complete = self._deployment.complete
        for item in self._items:
            if isinstance(item, Skipped):
                self.waiting.append(None)
                yield item
                continue
            if isinstance(item, TraceBatch):
                batch = self._deployment.complete_batch(item)
                if batch is not None:
                    yield batch
                    continue
                requests = item.requests()
            else:
                requests = iter((item,))
            for request in map(complete, requests):
                self.waiting.append(request)
                yield request


class IdReplay:
    """Replays a log of block ids: nothing is rendered or encoded, so nothing is spent on it.

    Other prompts between them go to a replayer, which is made for the first one. `statistics` are
    its.
    """

    def __init__(self, items: Iterable[LogItem], make_replayer: Callable[[], Replayer]) -> None:
        self._items = items
        self._make_replayer = make_replayer
        self._replayer: Replayer | None = None

    @property
    def statistics(self) -> ReplayStatistics:
        return ReplayStatistics() if self._replayer is None else self._replayer.statistics

    def __iter__(self) -> Iterator[Prompt | Skipped | TraceBatch]:
        for item in self._items:
            if isinstance(item, Skipped | TraceBatch):
                yield item
            elif isinstance(item.prompt, BlockHashes):
                yield _prompt_of_ids(item, item.prompt)
            else:
                if self._replayer is None:
                    self._replayer = self._make_replayer()
                yield self._replayer.replay(item)


def _prompt_of_ids(request: Request, ids: BlockHashes) -> Prompt:
    return Prompt(
        request=request,
        tokens=ids,
        num_prompt_tokens=ids.num_prompt_tokens,
        generated_token_ids=UNKNOWN,
    )


class _Gathering:
    """What grows while a log is read: the trace, a row an item, and counts."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        cache_generated: bool,
        auditing: Auditing | None,
        reasons: Reasons | None,
        warming: Warming | None,
    ) -> None:
        self._deployment = deployment
        self._cache_generated = cache_generated
        self._auditing = auditing
        self._reasons = reasons
        self._warming = warming
        self._builder: TraceBuilder | None = None
        self._block_size, self._origin = block_size_of(deployment)
        self._trace_blocks = False
        self._rows = Rows(
            path=array("i"), line=array("q"), position=array("q"), paths={}, skipped_request_ids={}
        )
        self._skipped: list[Skipped] = []
        self._reported_cached = array("q")
        self._usage_rows = UsageRows()
        self._lengths = Compared()
        self._forks: Counter[tuple[int, int]] = Counter()
        self._num_with_answer = self._num_by_length = self._num_approximate = 0
        self.num_requests = 0
        self.num_tokens = 0

    def skip(self, item: Skipped, request: Request | None) -> None:
        """Note a record that isn't replayed; `request` is what was read of it, if anything."""
        rows = self._rows
        if request is not None:
            rows.skipped_request_ids[len(rows)] = request.request_id
            self._usage_rows.add(request, len(rows), -1)
        rows.add(item, -1 - len(self._skipped))
        self._skipped.append(item)

    def add(self, prompt: Prompt) -> None:
        """Take a prompt; one whose blocks are of another size than those before is skipped."""
        request, rows = prompt.request, self._rows
        builder = self._started(prompt)
        try:
            builder.add(prompt, len(rows))
        except IncompleteError as error:
            reason = str(error).removeprefix(f"{request.source}: ")
            self.skip(Skipped(source=request.source, kind="unfit-blocks", reason=reason), request)
            return
        if self._auditing is not None:
            self._auditing.add(prompt, len(rows))
        if self._reasons is not None:
            self._reasons.add(prompt)
        if self._warming is not None:
            self._warming.add(prompt, len(rows))
        self._usage_rows.add(
            request, len(rows), self.num_requests, is_approximate=prompt.is_approximate
        )
        rows.add(request, self.num_requests)
        self.num_requests += 1
        self.num_tokens += prompt.num_prompt_tokens
        usage = request.usage
        reported = usage.num_cached_tokens
        self._reported_cached.append(reported if isinstance(reported, int) else NOT_REPORTED)
        expected = usage.num_prompt_tokens
        is_text = not isinstance(request.prompt, BlockHashes | TokenIds)
        if isinstance(expected, int) and is_text and not prompt.is_approximate:
            self._lengths.add(prompt.num_prompt_tokens, expected)
        if request.num_samples > 1:
            self._forks[prompt.num_prompt_tokens, request.num_samples] += 1
        if prompt.is_approximate:
            self._num_approximate += 1
        if prompt.generated_token_ids is not UNKNOWN:
            self._num_with_answer += 1
        elif isinstance(usage.num_completion_tokens, int):
            self._num_by_length += 1

    def add_batch(self, batch: TraceBatch) -> None:
        """Take requests that came as columns, as `add` would one by one."""
        builder = self._started(batch)
        if self._warming is not None or not builder.takes(batch):
            for request in batch.requests():
                assert isinstance(request.prompt, BlockHashes), "a batch holds block ids"
                self.add(_prompt_of_ids(request, request.prompt))
            return
        builder.add_batch(batch, len(self._rows))
        if self._auditing is not None:
            self._auditing.add_batch(batch)
        if self._reasons is not None:
            self._reasons.add_batch(batch)
        self._usage_rows.add_batch(batch, len(self._rows), self.num_requests)
        self._rows.add_batch(batch, self.num_requests)
        self.num_requests += len(batch)
        self.num_tokens += int(batch.num_prompt_tokens.sum())
        self._reported_cached.extend([NOT_REPORTED] * len(batch))
        self._num_by_length += len(batch)

    def _started(self, first: Prompt | TraceBatch) -> TraceBuilder:
        """Return the builder; the first prompts of a log decide in which blocks it's hashed."""
        if self._builder is None:
            self._block_size, self._origin = choose_block_size(self._deployment, first)
            self._trace_blocks = self._origin == "trace"
            self._builder = TraceBuilder(
                block_size=self._block_size, cache_generated=self._cache_generated
            )
            if self._auditing is not None:
                self._auditing.start(self._block_size)
            if self._warming is not None:
                self._warming.start(
                    self._block_size,
                    holds_ids=self._trace_blocks,
                    cache_generated=self._cache_generated,
                )
        return self._builder

    def gathered(self, stream: LogStream, statistics: ReplayStatistics) -> Gathered:
        """Return all that was learned, at the log's end."""
        num_requests = self.num_requests
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
            replay=statistics,
            trace=self._builder.finish() if self._builder is not None and num_requests else None,
            rows=self._rows,
            skipped=tuple(self._skipped),
            block_size=self._block_size,
            block_size_origin=self._origin,
            trace_blocks=self._trace_blocks,
            reported_cached_tokens=self._reported_cached,
            prompt_lengths=self._lengths,
            num_with_answer=self._num_with_answer,
            num_without_answer=num_requests - self._num_with_answer,
            num_answers_by_length_only=self._num_by_length,
            num_approximate=self._num_approximate,
            forks=self._forks,
            usage=self._usage_rows.columns(),
            readings=stream.readings,
            repairs=stream.repairs,
            num_marked=stream.num_marked,
            marks=stream.marks,
            log_notes=tuple(dict.fromkeys(note for file in stream.files for note in file.notes)),
        )


def gather(
    stream: LogStream,
    deployment: Deployment,
    replay: Replay,
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
    first, items = _with_first(stream.batches())
    if not holds_ids(first):
        items = one_by_one(items)
    gathering = _Gathering(
        deployment,
        cache_generated=cache_generated,
        auditing=auditing,
        reasons=reasons,
        warming=warming,
    )
    remembered = _Remembered(items, deployment)
    run = replay(remembered, first)
    num_shown = 0
    for prompt in run:
        if isinstance(prompt, TraceBatch):
            gathering.add_batch(prompt)
        else:
            request = remembered.waiting.popleft()
            if isinstance(prompt, Skipped):
                gathering.skip(prompt, request)
            else:
                gathering.add(prompt)
        if gathering.num_requests - num_shown >= _PROGRESS_REQUESTS:
            num_shown = gathering.num_requests
            progress.update(
                stream.num_bytes_read, stream.num_bytes_total, num_shown, gathering.num_tokens
            )
    progress.stage("building the block tree")
    return gathering.gathered(stream, run.statistics)


def holds_ids(first: Request | TraceBatch | None) -> bool:
    """Say whether a log is a trace of block ids, by its first request."""
    return isinstance(first, TraceBatch) or (
        first is not None and isinstance(first.prompt, BlockHashes)
    )


def _with_first(items: Iterator[LogItem]) -> tuple[Request | TraceBatch | None, Iterator[LogItem]]:
    """Look at the first request or batch; return it, and all items again."""
    read: list[LogItem] = []
    for item in items:
        read.append(item)
        if not isinstance(item, Skipped):
            return item, chain(read, items)
    return None, iter(read)
