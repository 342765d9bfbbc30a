"""One timed run, at both ends of the range: from a setup to figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.cost.savings import lookup_s
from prefixaudit.plan.report import Occupancy, Percentiles, Range, TimedFigures
from prefixaudit.plan.timing import StepRange
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import SchedulerRules
from prefixaudit.pool.vllm.timed import (
    NO_TIERS,
    ONE_REPLICA,
    Replicas,
    StepSeconds,
    Tiers,
    TimedServing,
    serve_timed,
)
from prefixaudit.pool.vllm.timed_stepwise import serve_stepwise

_NUM_MOMENTS: Final = 24
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What serves the log but for the pool's size: rules, steps, arrivals and answers."""

    trace: BlockTrace
    namespaces: Int32Array
    rules: PoolRules
    scheduler: SchedulerRules
    steps: StepRange
    arrival_s: Float64Array
    num_answer_tokens: Int64Array

    def runs(
        self,
        capacity_blocks: int,
        *,
        replicas: Replicas = ONE_REPLICA,
        tiers: tuple[Tiers, Tiers] = (NO_TIERS, NO_TIERS),
        ends: Sequence[StepSeconds] | None = None,
    ) -> tuple[TimedServing, ...]:
        """Serve at each end of the range, the fast one first; `tiers` are (fast, slow).

        Pools of several groups are served step by step, by one replica without tiers.
        """
        both = self.steps.ends if ends is None else ends
        if len(both) == 1 and tiers[0] != tiers[1]:
            both = (both[0], both[0])
        if len(self.rules.groups) > 1:
            assert replicas.num_replicas == 1, "several groups are served by one replica"
            return tuple(
                serve_stepwise(
                    self.trace,
                    self.namespaces,
                    capacity_blocks=capacity_blocks,
                    pool=self.rules,
                    scheduler=self.scheduler,
                    seconds=seconds,
                    num_answer_tokens=self.num_answer_tokens,
                    arrival_s=self.arrival_s,
                )
                for seconds in both
            )
        return tuple(
            serve_timed(
                self.trace,
                self.namespaces,
                capacity_blocks=capacity_blocks,
                pool=self.rules,
                scheduler=self.scheduler,
                seconds=seconds,
                num_answer_tokens=self.num_answer_tokens,
                arrival_s=self.arrival_s,
                replicas=replicas,
                tiers=of_end,
            )
            for seconds, of_end in zip(both, tiers, strict=False)
        )

    def figures(self, runs: Sequence[TimedServing]) -> TimedFigures:
        """Return the figures of `runs`, the fast end's first."""
        trace = self.trace
        tokens = max(int(trace.num_prompt_tokens.sum()), 1)
        lookup = lookup_s(trace.num_prompt_tokens, block_size=trace.block_size)
        lookups = (lookup.lo, lookup.hi)
        served = [~run.refused for run in runs]

        def share(column: Callable[[TimedServing], Int64Array]) -> Range:
            return _range([float(np.maximum(column(run), 0).sum()) / tokens for run in runs])

        def over(column: Callable[[TimedServing, Float64Array], Float64Array]) -> Percentiles:
            return percentiles(
                [
                    column(run, lookups[end])[inside]
                    for end, (run, inside) in enumerate(zip(runs, served, strict=True))
                ]
            )

        span = float(np.ptp(self.arrival_s)) if trace.num_requests else 0.0
        last = max((float(np.nanmax(run.finished_s, initial=-np.inf)) for run in runs), default=0)
        late = last - float(self.arrival_s.max(initial=-np.inf)) if trace.num_requests else 0.0
        needed = trace.num_prompt_tokens + self.num_answer_tokens - 1
        return TimedFigures(
            token_hit_rate=share(lambda run: run.num_cached_tokens),
            fetched_rate=share(lambda run: run.num_tier_blocks.sum(axis=1) * trace.block_size),
            ttft=over(lambda run, found: run.first_token_s - self.arrival_s + found),
            queue=over(lambda run, _: run.admitted_s - self.arrival_s),
            lookup=over(lambda run, found: found),
            fetch=over(lambda run, _: run.fetch_s),
            prefill=over(lambda run, _: run.first_token_s - run.admitted_s - run.fetch_s),
            itl=_itl(runs),
            num_preemptions=_range([float(run.num_preemptions.sum()) for run in runs]),
            num_recomputed_tokens=_range(
                [
                    float(_recomputed(run, needed, inside))
                    for run, inside in zip(runs, served, strict=True)
                ]
            ),
            peak_running=_range([max(_running(run), default=0.0) for run in runs]),
            mean_running=_range([float(np.mean(_running(run) or [0.0])) for run in runs]),
            num_refused=max((int(run.refused.sum()) for run in runs), default=0),
            is_overloaded=late > 0.1 * span and trace.num_requests > 1,
            occupancy=_moments(runs[-1].samples[0]),
        )


def _recomputed(run: TimedServing, needed: Int64Array, served: NDArray[np.bool_]) -> int:
    """Return the tokens computed again: what was computed, hit and fetched beyond what is needed.

    An answer that reached the longest context ended early.
    """
    done = run.num_computed_tokens + run.num_hit_tokens + run.num_fetched_tokens
    return int(np.maximum(done - needed, 0)[served].sum())


def _running(run: TimedServing) -> list[float]:
    """Return requests running over time, of all replicas together where they were looked at."""
    return [float(number) for rows in run.samples for number in rows[:, 3]]


def _itl(runs: Sequence[TimedServing]) -> Percentiles | None:
    if not all(run.num_gaps.any() for run in runs):
        return None

    def at(share: float) -> Range:
        return _range([run.gap_percentile_s(share) for run in runs])

    return Percentiles(p50_s=at(0.50), p95_s=at(0.95), p99_s=at(0.99))


def _moments(samples: Float64Array) -> tuple[Occupancy, ...]:
    if not len(samples):
        return ()
    evenly = np.linspace(0, len(samples) - 1, _NUM_MOMENTS).astype(np.int64)
    places = np.union1d(evenly, [int(np.argmax(samples[:, 5]))])
    return tuple(
        Occupancy(
            time_s=float(samples[place, 0]),
            num_shared_blocks=int(samples[place, 5]),
            num_private_blocks=int(samples[place, 1] - samples[place, 5]),
            num_idle_cached_blocks=int(samples[place, 2]),
            num_running=int(samples[place, 3]),
            num_waiting=int(samples[place, 4]),
        )
        for place in places.tolist()
    )


def percentiles(ends: Sequence[Float64Array]) -> Percentiles:
    """Return percentiles by nearest rank at each end, as ranges; NaN without requests."""

    def at(percent: int) -> Range:
        return _range([percentile(end, percent) for end in ends])

    return Percentiles(p50_s=at(50), p95_s=at(95), p99_s=at(99))


def percentile(values: Float64Array, percent: int) -> float:
    """Return a percentile by nearest rank; NaN of nothing."""
    if not len(values):
        return float("nan")
    rank = max(-(-percent * len(values) // 100), 1)
    return float(np.partition(values, rank - 1)[rank - 1])


def _range(values: Sequence[Number]) -> tuple[Number, Number]:
    return min(values), max(values)
