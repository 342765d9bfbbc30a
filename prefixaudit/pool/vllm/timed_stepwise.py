"""A log served in time by the step-by-step scheduler: any groups, at the price of Python.

What `timed` is for one full attention group and logs of any size, this is for models with windows
or states and logs of some thousand requests. Steps take the same roofline; where every running
request just gets its next token, they are done at once.
"""

from __future__ import annotations

import numpy as np

from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.errors import UsageError
from prefixaudit.pool.explicit_blocks import block_ids
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import NEVER, Scheduler, SchedulerRules, ServedRequest, Step
from prefixaudit.pool.vllm.sharing import occupancy
from prefixaudit.pool.vllm.timed import GAP_EDGES_S, GAPS_PER_OCTAVE, StepSeconds, TimedServing

_MAX_SAMPLES = 512


def serve_stepwise(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int,
    pool: PoolRules,
    scheduler: SchedulerRules,
    seconds: StepSeconds,
    num_answer_tokens: Int64Array,
    arrival_s: Float64Array | None = None,
) -> TimedServing:
    """Serve a trace in time from a pool of `capacity_blocks` usable blocks, shared by all groups.

    See `timed.serve_timed` for the arguments. Raises UsageError where the trace's blocks aren't the
    unit of the pool's keys, or an arrival isn't known.
    """
    if trace.block_size != pool.hash_block_size:
        raise UsageError(
            f"the trace has blocks of {trace.block_size} tokens, the pool is keyed by "
            f"{pool.hash_block_size}"
        )
    arrivals = trace.arrival_s if arrival_s is None else arrival_s
    if np.isnan(arrivals).any():
        raise UsageError("a request has no arrival time; a timed replay needs all of them")
    run = _Run(trace, namespaces, capacity_blocks, pool, scheduler, seconds, num_answer_tokens)
    run.serve(arrivals)
    return run.result()


class _Run:
    def __init__(
        self,
        trace: BlockTrace,
        namespaces: Int32Array,
        capacity_blocks: int,
        pool: PoolRules,
        scheduler: SchedulerRules,
        seconds: StepSeconds,
        num_answer_tokens: Int64Array,
    ) -> None:
        number = trace.num_requests
        self.scheduler = Scheduler(pool, capacity_blocks + 1, scheduler)
        self.seconds = seconds
        self.requests = [
            ServedRequest(
                number=place,
                keys=(
                    block_ids(trace, place) + int(namespaces[place]) * trace.num_distinct_blocks
                ).tolist(),
                num_prompt_tokens=int(trace.num_prompt_tokens[place]),
                num_tokens=int(trace.num_prompt_tokens[place]),
                num_answer_tokens=int(num_answer_tokens[place]),
                reads_cache=bool(trace.reads_cache[place]),
            )
            for place in range(number)
        ]
        self.admitted_s = np.full(number, np.nan)
        self.first_s = np.full(number, np.nan)
        self.last_s = np.full(number, np.nan)
        self.finished_s = np.full(number, np.nan)
        self.refused: set[int] = set()
        self.gaps = np.zeros(len(GAP_EDGES_S), dtype=np.int64)
        self.samples: list[tuple[float, ...]] = []
        self.num_steps = 0
        self.num_evicted = 0

    def serve(self, arrivals: Float64Array) -> None:
        coming = np.argsort(arrivals, kind="stable").tolist()
        at = 0
        now = 0.0
        span = float(np.ptp(arrivals)) if len(arrivals) else 0.0
        next_sample_s = -np.inf
        of = self.scheduler
        while at < len(coming) or of.running or of.waiting:
            if not of.running and not of.waiting:
                now = (
                    max(now, float(arrivals[coming[at]]))
                    if self.num_steps
                    else float(arrivals[coming[at]])
                )
            while at < len(coming) and arrivals[coming[at]] <= now:
                of.add(self.requests[coming[at]])
                at += 1
            until = float(arrivals[coming[at]]) if at < len(coming) else np.inf
            quiet = of.quiet_steps()
            if quiet:
                now = self._skip(quiet, now, until)
                continue
            step = of.step()
            if step.stuck is not None:
                self.refused.add(of.withdraw_first().number)
                continue
            now = self._after(step, now)
            if now >= next_sample_s and len(self.samples) < _MAX_SAMPLES:
                self._sample(now, at, coming, arrivals)
                next_sample_s = now + span / (_MAX_SAMPLES // 2)

    def _skip(self, quiet: int, now: float, until: float) -> float:
        """Do quiet steps one by one in time, all at once in the pool; stop for an arrival."""
        running = self.scheduler.running
        done = 0
        while done < quiet and now < until:
            contexts = [request.num_computed_tokens + done for request in running]
            flops = sum(
                self.seconds.flops_until[c + 1] - self.seconds.flops_until[c] for c in contexts
            )
            flops += self.seconds.sample_flops * len(running)
            now += self._step_s(flops, len(running), sum(contexts) + len(running))
            for request in running:
                self._token(request.number, now)
            done += 1
        self.scheduler.skip(done)
        self.num_steps += done
        return now

    def _after(self, step: Step, now: float) -> float:
        self.num_steps += 1
        flops = self.seconds.sample_flops * len(step.sampled)
        context = 0
        for request, start, num_tokens in step.batch:
            until = self.seconds.flops_until
            flops += until[start + num_tokens] - until[start]
            context += start + num_tokens
            if np.isnan(self.admitted_s[request.number]):
                self.admitted_s[request.number] = now
        now += self._step_s(flops, step.num_tokens, context)
        for request in step.sampled:
            self._token(request.number, now)
        for request in step.finished:
            self.finished_s[request.number] = now
        self.num_evicted += len(self.scheduler.manager.take_evicted())
        return now

    def _step_s(self, flops: float, new: int, context: int) -> float:
        seconds = self.seconds
        if new == 0:
            return 0.0
        busy = max(
            flops * seconds.s_per_flop[new], seconds.moved_s[new] + context * seconds.token_s
        )
        return float(busy + seconds.overhead_s[new])

    def _token(self, number: int, now: float) -> None:
        if np.isnan(self.first_s[number]):
            self.first_s[number] = now
        else:
            gap_us = (now - self.last_s[number]) * 1e6
            place = int(GAPS_PER_OCTAVE * np.log2(gap_us)) if gap_us > 1.0 else 0
            self.gaps[min(place, len(self.gaps) - 1)] += 1
        self.last_s[number] = now

    def _sample(self, now: float, at: int, coming: list[int], arrivals: Float64Array) -> None:
        used = occupancy(self.scheduler.manager)
        waiting = len(self.scheduler.waiting)
        while at < len(coming) and arrivals[coming[at]] <= now:
            waiting += 1
            at += 1
        self.samples.append(
            (
                now,
                used.num_used_blocks,
                used.num_cached_free_blocks,
                len(self.scheduler.running),
                waiting,
                used.num_shared_blocks,
            )
        )

    def result(self) -> TimedServing:
        requests, number = self.requests, len(self.requests)
        refused = np.zeros(number, dtype=np.bool_)
        refused[list(self.refused)] = True
        cached = np.array([request.num_cached_tokens for request in requests], dtype=np.int64)
        for times in (self.admitted_s, self.first_s, self.finished_s):
            times[refused] = np.nan
        return TimedServing(
            num_cached_tokens=np.where(refused, NEVER, cached),
            num_hit_tokens=np.array([r.num_hit_tokens for r in requests], dtype=np.int64),
            num_fetched_tokens=np.zeros(number, dtype=np.int64),
            num_tier_blocks=np.zeros((number, 0), dtype=np.int64),
            fetch_s=np.zeros(number),
            replica=np.zeros(number, dtype=np.int64),
            num_computed_tokens=np.array([r.num_scheduled_tokens for r in requests], np.int64),
            num_discarded_tokens=np.array([r.num_discarded_tokens for r in requests], np.int64),
            num_preemptions=np.array([r.num_preemptions for r in requests], dtype=np.int64),
            admitted_s=self.admitted_s,
            first_token_s=self.first_s,
            finished_s=self.finished_s,
            gap_edges_s=GAP_EDGES_S,
            num_gaps=self.gaps,
            samples=(np.array(self.samples, dtype=np.float64).reshape(-1, 6),),
            num_steps=self.num_steps,
            num_evicted_blocks=self.num_evicted,
            num_block_operations=0,
        )
