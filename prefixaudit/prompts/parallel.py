"""Replays requests in several processes; the results and their order don't depend on how many.

Requests of one session, or of conversations that start with the same text, go to the same
process, so that its cache knows the earlier turns. Requests are read in windows of bounded size:
a log larger than memory can be replayed. What is sent to a process is the prompt alone.
"""

from __future__ import annotations

import signal
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import (
    ChatMessages,
    Generated,
    PromptInput,
    RawText,
    Request,
    Skipped,
)
from prefixaudit.core.unknown import Unknown
from prefixaudit.errors import IncompleteError
from prefixaudit.prompts.media import num_characters
from prefixaudit.prompts.options import ReplayOptions
from prefixaudit.prompts.replayer import Replayed, Replayer, finished
from prefixaudit.prompts.statistics import ReplayStatistics

_WINDOW_REQUESTS = 256
_WINDOW_CHARACTERS = 8 << 20
_START_CHARACTERS = 2048

_Work: TypeAlias = tuple[PromptInput, float | Unknown, Generated | None | Unknown]


@dataclass(slots=True)
class _Window:
    """Requests read together, and what each process was asked: positions and their results."""

    items: list[Request | Skipped]
    asked: list[tuple[int, list[int], Future[_Answers]]]


_Answers: TypeAlias = tuple[list[Replayed], ReplayStatistics]


class ReplayRun:
    """Iterate to get a Prompt or Skipped for each item, in order; `statistics` grows meanwhile.

    Items that are Skipped already are passed through. Raises IncompleteError if a process dies.
    """

    def __init__(
        self,
        items: Iterable[Request | Skipped],
        model_dir: Path | None,
        options: ReplayOptions,
        jobs: int,
    ) -> None:
        self._items = items
        self._model_dir = model_dir
        self._options = options
        self._jobs = jobs
        self._replayer: Replayer | None = None
        self._by_process: dict[int, ReplayStatistics] = {}

    @property
    def statistics(self) -> ReplayStatistics:
        """Return the sum over all processes so far."""
        if self._replayer is not None:
            return self._replayer.statistics
        return sum(self._by_process.values(), ReplayStatistics())

    def __iter__(self) -> Iterator[Prompt | Skipped]:
        if self._jobs <= 1:
            replayer = self._replayer = Replayer(self._model_dir, self._options)
            for item in self._items:
                yield item if isinstance(item, Skipped) else replayer.replay(item)
            return
        yield from self._in_processes()

    def _in_processes(self) -> Iterator[Prompt | Skipped]:
        import multiprocessing

        # Each process keeps a cache of its own: together they keep to the bound.
        options = replace(self._options, cache_bytes=self._options.cache_bytes // self._jobs)
        context = multiprocessing.get_context("spawn")
        others = set(multiprocessing.active_children())
        pools = [
            ProcessPoolExecutor(
                max_workers=1,
                mp_context=context,
                initializer=_start,
                initargs=(self._model_dir, options),
            )
            for _ in range(self._jobs)
        ]
        waiting: deque[_Window] = deque()
        try:
            for items in _windows(self._items, self._jobs):
                waiting.append(self._asked(items, pools))
                if len(waiting) > 2:
                    yield from self._answered(waiting.popleft())
            while waiting:
                yield from self._answered(waiting.popleft())
        except BrokenProcessPool:
            raise IncompleteError(
                "a process that replays prompts died; it may have run out of memory",
                hint="try fewer --jobs",
            ) from None
        except BaseException:
            # After Ctrl-C, or where the caller wants no more, nobody waits for batches under way.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            for pool in pools:
                pool.shutdown(wait=True, cancel_futures=True)

    def _asked(self, items: list[Request | Skipped], pools: list[ProcessPoolExecutor]) -> _Window:
        places: list[list[int]] = [[] for _ in pools]
        for place, item in enumerate(items):
            if isinstance(item, Request):
                places[_route(item) % len(pools)].append(place)
        asked = []
        for process, mine in enumerate(places):
            if mine:
                work = [_work(items[place]) for place in mine]
                with _deaf_children():
                    future = pools[process].submit(_replay_batch, work)
                asked.append((process, mine, future))
        return _Window(items=items, asked=asked)

    def _answered(self, window: _Window) -> Iterator[Prompt | Skipped]:
        replayed: dict[int, Replayed] = {}
        for process, places, future in window.asked:
            results, statistics = future.result()
            replayed.update(zip(places, results, strict=True))
            self._by_process[process] = statistics
        for place, item in enumerate(window.items):
            yield item if isinstance(item, Skipped) else finished(item, replayed[place])


def replay_many(
    items: Iterable[Request | Skipped],
    model_dir: Path | None,
    options: ReplayOptions | None = None,
    *,
    jobs: int = 1,
) -> ReplayRun:
    """Replay a log's requests in `jobs` processes; one is this process itself."""
    return ReplayRun(items, model_dir, options or ReplayOptions(), jobs)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that are started meanwhile not hear Ctrl-C, which reaches the whole group.

    It is this process that ends them; on their own they would fill stderr with tracebacks. A Ctrl-C
    in the meantime is heard afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _windows(items: Iterable[Request | Skipped], jobs: int) -> Iterator[list[Request | Skipped]]:
    window: list[Request | Skipped] = []
    num_characters = 0
    for item in items:
        window.append(item)
        if isinstance(item, Request):
            num_characters += _num_characters(item.prompt)
        if len(window) >= _WINDOW_REQUESTS * jobs or num_characters >= _WINDOW_CHARACTERS * jobs:
            yield window
            window, num_characters = [], 0
    if window:
        yield window


def _num_characters(prompt: PromptInput) -> int:
    if isinstance(prompt, RawText):
        return len(prompt.text)
    if isinstance(prompt, ChatMessages):
        return sum(max(64, num_characters(message.get("content"))) for message in prompt.messages)
    return 0


def _route(request: Request) -> int:
    """Return a number that is equal for requests whose prompts probably start alike.

    The first user message, or the start of a raw text, tells conversations with one system prompt
    apart; the system prompt itself is then encoded once in each process.
    """
    if isinstance(request.session_id, str):
        start = request.session_id
    elif isinstance(request.prompt, RawText):
        start = request.prompt.text[:_START_CHARACTERS]
    elif isinstance(request.prompt, ChatMessages):
        start = "".join(
            content[:_START_CHARACTERS]
            for message in request.prompt.messages[:2]
            if isinstance(content := message.get("content"), str)
        )
    else:
        start = request.request_id
    return zlib.crc32(start.encode("utf-8", "surrogatepass"))


def _work(item: Request | Skipped) -> _Work:
    assert isinstance(item, Request)
    return item.prompt, item.arrival_s, item.generated


_replayer: Replayer | None = None


def _start(model_dir: Path | None, options: ReplayOptions) -> None:
    global _replayer
    _replayer = Replayer(model_dir, options)


def _replay_batch(work: list[_Work]) -> _Answers:
    assert _replayer is not None, "the process was started by _start"
    results = [_replayer.replay_parts(*parts) for parts in work]
    return results, _replayer.statistics
