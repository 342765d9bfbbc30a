"""What a plan says, as values: a row an option, the curve's shape, and one recommendation.

A range is (low, high) of the two ends of the cost model; both are equal where time was measured.
None is not known or not asked, never 0. Rates and shares lie in 0..1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from prefixaudit.plan.contents import Loser, SharedPrefix, WorkingSet
from prefixaudit.plan.sampling import SampledRate
from prefixaudit.plan.shape import Cliff

Range: TypeAlias = tuple[float, float]
Sweep: TypeAlias = Literal[
    "capacity", "block-size", "policy", "hardware", "tiers", "replicas", "isolation"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Ranges in seconds over requests (for ITL, gaps between tokens); NaN where none was served."""

    p50_s: Range
    p95_s: Range
    p99_s: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """A pool at one moment, in blocks: shared by running requests, theirs alone, cached and idle.

    What is missing to the pool's size is empty, or holds KV that has no key.
    """

    time_s: float
    num_shared_blocks: int
    num_private_blocks: int
    num_idle_cached_blocks: int
    num_running: int
    num_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFigures:
    """The log served in time.

    token_hit_rate   tokens hit in the pool at first admission / prompt tokens
    fetched_rate     tokens fetched from tiers at first admission / prompt tokens
    ttft             queue + lookup + fetch + prefill; the four stand apart beside it
    num_recomputed_tokens  tokens computed more than once, after preemptions
    occupancy        of the first replica at the slow end, over time; the moment when most blocks
                     were shared is among the moments
    is_overloaded    at the slow end the last answer came more than a tenth of the log's span after
                     the last arrival: the queue grows, and waiting says how long the log is
    """

    token_hit_rate: Range
    fetched_rate: Range
    ttft: Percentiles
    queue: Percentiles
    lookup: Percentiles
    fetch: Percentiles
    prefill: Percentiles
    itl: Percentiles | None
    num_preemptions: Range
    num_recomputed_tokens: Range
    peak_running: Range
    mean_running: Range
    num_refused: int
    is_overloaded: bool
    occupancy: tuple[Occupancy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a sweep.

    capacity_blocks       of one replica; None: endless
    token_hit_rate        requests one after another; cached tokens / prompt tokens
    safe_token_hit_rate   the same with blocks kept apart by the complete identity
    flops_saved_share     of the prefill FLOPs; None without a model
    replicas_needed, gpus_needed, usd_per_day  for the TTFT target, if one is given: at best and at
                          worst; None where up to 64 replicas don't meet it (see `note`)
    basis                 the rule and the assumption that the figures rest on
    """

    sweep: Sweep
    label: str
    block_size: int
    capacity_blocks: int | None
    capacity_bytes: int | None
    num_replicas: int
    token_hit_rate: float | None
    safe_token_hit_rate: float | None
    flops_saved_share: float | None
    timed: TimedFigures | None
    replicas_needed: tuple[int, int] | None
    gpus_needed: tuple[int, int] | None
    usd_per_day: Range | None
    basis: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The token hit rate of one pool size, requests one after another."""

    capacity_blocks: int
    token_hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """From how many cached tokens on a fetch from a tier is faster than computing them.

    At best and at worst; None: no prefix up to 2**20 tokens is.
    """

    tier: str
    num_tokens: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to do, why, and what that rests on: sentences."""

    action: str
    reasons: tuple[str, ...]
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The answer to `prefixaudit plan`.

    capacity_blocks   the pool that everything but the capacity sweep is about
    capacity_origin   where that size is from
    knee_blocks       None where nothing is ever hit
    sampled           hit rates from a part of the log with bounds, if a sample was asked for
    incomplete        why there is no answer (exit code 3), None where there is one
    """

    version: str
    files: tuple[str, ...]
    num_requests: int
    num_skipped: int
    span_s: float | None
    num_prompt_tokens: int
    num_answer_tokens: int
    answer_origin: str
    load: float
    engine: str | None
    model: str | None
    hardware: str | None
    block_size: int
    capacity_blocks: int | None
    capacity_bytes: int | None
    capacity_origin: str
    simulation: str
    curve: tuple[CurvePoint, ...]
    knee_blocks: int | None
    enough_blocks: int
    endless_hit_rate: float
    cliffs: tuple[Cliff, ...]
    options: tuple[Option, ...]
    working_sets: tuple[WorkingSet, ...]
    prefixes: tuple[SharedPrefix, ...]
    losers: tuple[Loser, ...]
    break_even: tuple[BreakEven, ...]
    sampled: tuple[SampledRate, ...]
    sample_share: float | None
    ttft_target_s: float | None
    recommendation: Recommendation | None
    findings: tuple[str, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    incomplete: str | None = None

    @property
    def exit_code(self) -> int:
        """Return 3 where the plan is incomplete, else 0."""
        return 3 if self.incomplete is not None else 0
