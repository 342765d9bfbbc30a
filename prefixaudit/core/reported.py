"""What servers reported of their caches, beside what a replay gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.finding import SharedBy
from prefixaudit.core.trace import Int64Array

NOT_REPORTED: Final = -1
REPORTED_NULL: Final = -2

NullMeaning: TypeAlias = Literal["zero", "unknown", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageColumns:
    """One row for every request that was read, replayed or not, int64 each.

    index          position in the log, from 0, counting skipped records too
    position       place in the trace, -1 where the prompt wasn't replayed
    prompt_tokens, cached_tokens, completion_tokens
                   as reported; NOT_REPORTED (-1), or REPORTED_NULL (-2) for null
    server         equal for requests that the log says went to one server; -1 where it doesn't
    counted_outside bool: the server gave cached tokens beside the prompt's, and they were added
    is_approximate bool: the prompt's length isn't known exactly, so that it can't be compared
    """

    index: Int64Array
    position: Int64Array
    prompt_tokens: Int64Array
    cached_tokens: Int64Array
    completion_tokens: Int64Array
    server: Int64Array
    is_approximate: NDArray[np.bool_]
    counted_outside: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsage:
    """Sums of the usage that servers reported, of replayed requests and others alike.

    num_without_usage   requests whose record has no usage at all
    num_null_cached     usage whose cached tokens, or their details, are null
    num_without_cached  usage that says nothing of cached tokens
    prompt_tokens       of the requests with cached tokens or null for them
    completion_tokens   of all requests that have them
    null_requests, missing_requests  positions in the log: null for cached tokens, no figure of them
    null_means          "zero": nothing was hit; "unknown": zero or not counted, the rate lies
                        between the two; "none": there is no null
    hit_rate            cached / prompt tokens; None where null may mean either, or nothing is known
    """

    num_requests: int
    num_without_usage: int
    num_with_cached: int
    num_null_cached: int
    num_without_cached: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    null_means: NullMeaning
    null_reason: str
    hit_rate: float | None
    hit_rate_if_null_is_zero: float | None
    hit_rate_of_reported_only: float | None
    null_requests: tuple[int, ...]
    missing_requests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTrust:
    """Whether replayed prompts are as long as the server's; `difference` where all differ alike."""

    num_compared: int
    num_equal: int
    difference: int | None
    is_trusted: bool
    reason: str


GapKind: TypeAlias = Literal[
    "unsafe", "larger-pool", "not-in-log",
    "other-replica", "finer-key", "in-flight", "evicted", "unexplained",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedGap:
    """Requests for which the server reported other cached tokens than the replay, and why.

    `num_tokens` is the sum of the differences: reported more (the first three kinds) or less.
    `requests` are the first few, by position in the log.
    """

    kind: GapKind
    is_more: bool
    about: str
    num_requests: int
    num_tokens: int
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondIdentity:
    """Requests that were served what only requests of another identity stored in this log.

    `requests` are positions in the log; `fields` those in which readers and donors differ; `pairs`
    the first few.
    """

    requests: tuple[int, ...]
    num_tokens: int
    fields: tuple[str, ...]
    pairs: tuple[SharedBy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The hit rates that one server gave of itself, told apart by what they cover.

    since_start  hit / queried tokens of its counters' last reading
    recent       the last rate it logged, of its last requests (vLLM: 1,000), and the highest
    this_run     hit / queried tokens between the first reading and the last, restarts left out
    num_queried_tokens, num_prompt_tokens  counters since start; more queries than prompts are
                 lookups counted twice
    """

    source: str
    engine: str | None
    server: str | None
    num_readings: int
    since_start: float | None
    recent: float | None
    highest_recent: float | None
    this_run: float | None
    num_queried_tokens: int | None
    num_prompt_tokens: int | None
    num_preemptions: int | None
    highest_kv_usage: float | None
    most_waiting: int | None

    @property
    def counts_twice(self) -> bool:
        """Say whether more tokens were looked up than all prompts have."""
        queried, prompts = self.num_queried_tokens, self.num_prompt_tokens
        return queried is not None and prompts is not None and queried > prompts

    @property
    def shows_preemption(self) -> bool:
        """Say whether requests were preempted, or the pool was full with requests waiting."""
        is_full = self.highest_kv_usage is not None and self.highest_kv_usage >= 0.95
        return bool(self.num_preemptions) or (is_full and bool(self.most_waiting))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFacts:
    """Reported against replayed. `trust` is None where nothing could be compared.

    `replayed_endless_hit_rate` is what an endless pool would reuse of this log, the measure of what
    servers claim; None where the replay isn't trusted. `counts_preempted_work` says whether this
    engine's version counts blocks that a preempted request finds again as hits; None: not known.
    """

    usage: ReportedUsage
    trust: ReplayTrust | None
    gaps: tuple[CachedGap, ...]
    beyond_identity: BeyondIdentity | None
    engines: tuple[EngineFigures, ...]
    num_repeated_ids: int
    replayed_endless_hit_rate: float | None
    counts_preempted_work: bool | None
