"""Arrivals, steps and seconds: a log served by one vLLM replica with a pool of full attention.

The steps are those of `scheduler`, as a compiled loop over integers; what a step takes comes from
a roofline that the caller fills in. Requests arrive when the log says so, hot prefixes compete with
active decode, and a prefix can be hit once it is scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.errors import UsageError
from prefixaudit.pool import lru_kernels
from prefixaudit.pool.separate import own_nodes
from prefixaudit.pool.vllm import routed_kernels
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import SchedulerRules

GAPS_PER_OCTAVE: Final = 32
_NUM_GAP_BINS: Final = 32 * GAPS_PER_OCTAVE
GAP_EDGES_S: Final = np.exp2((np.arange(_NUM_GAP_BINS) + 1) / GAPS_PER_OCTAVE) * 1e-6
"""Upper ends (float64, seconds) of the bins that times between tokens are counted in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """What a step takes: max(FLOPs * s_per_flop, moved_s + tokens read * token_s) + overhead_s.

    flops_until   float64 [positions + 1]  FLOPs of a prompt's first tokens, without the LM head
    sample_flops  of the LM head for one sampled token
    s_per_flop, moved_s, overhead_s  float64 [tokens + 1], by the new tokens of the step: seconds a
                  FLOP, seconds to read the weights, launches and collectives
    token_s       seconds to read or write the KV of one token
    """

    flops_until: Float64Array
    sample_flops: float
    s_per_flop: Float64Array
    moved_s: Float64Array
    token_s: float
    overhead_s: Float64Array

    @classmethod
    def constant(cls, step_s: float, *, max_model_tokens: int, max_tokens: int) -> StepSeconds:
        """Return steps that all take the same time."""
        return cls(
            flops_until=np.zeros(max_model_tokens + 1),
            sample_flops=0.0,
            s_per_flop=np.zeros(max_tokens + 1),
            moved_s=np.zeros(max_tokens + 1),
            token_s=0.0,
            overhead_s=np.full(max_tokens + 1, step_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSeconds:
    """A place below the pool: its size, and what a fetch from it takes.

    A fetch takes fixed_s + tokens * token_s, in the step that admits the request.
    """

    num_blocks: int
    token_s: float
    fixed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The tiers of one replica, the fastest first; each block stands in one of them.

    writes_through  a block comes to the first tier when it is computed, else when the pool gives it
                    up; what that pushes out goes one tier down
    promotes        a block that was fetched from a lower tier goes to the first one
    min_blocks      a shorter fetch is not made: computing is faster (the break-even length)
    """

    tiers: tuple[TierSeconds, ...] = ()
    writes_through: bool = True
    promotes: bool = True
    min_blocks: int = 1


NO_TIERS: Final = Tiers()
RoutingRule: TypeAlias = Literal["given", "least-cost", "best-score"]
_RULES: Final = {
    "given": routed_kernels.GIVEN,
    "least-cost": routed_kernels.LEAST_COST,
    "best-score": routed_kernels.BEST_SCORE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many servers there are, each with a pool of its own, and who gets a request.

    replica_of  int64 [requests] for the rule `given`; the others decide at the arrival, by what the
                pools hold then (see `routed_kernels.serve_routed` for the `weights`)
    """

    num_replicas: int = 1
    rule: RoutingRule = "given"
    weights: tuple[float, ...] = ()
    replica_of: Int64Array | None = None


ONE_REPLICA: Final = Replicas()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedServing:
    """What became of each request, in the trace's order; NaN and -1 where it never fitted.

    num_cached_tokens   int64  hit at the first admission
    num_hit_tokens      int64  hits of all admissions
    num_fetched_tokens  int64  tokens that came from a tier, all admissions
    num_tier_blocks     int64 [requests, tiers]  blocks from each tier at the first admission
    fetch_s             float64  seconds of the fetch at the first admission
    replica             int64  who served it
    num_computed_tokens int64  tokens computed for it, again after a preemption too
    num_discarded_tokens int64 tokens whose KV it held when it was preempted
    num_preemptions     int64
    admitted_s, first_token_s, finished_s  float64, on the clock of the arrivals
    gap_edges_s, num_gaps  float64 and int64 [bins]: seconds between two tokens of a request, and
                        how often; bins grow by 2.2 %
    samples             float64 [samples, 6] of each replica: time, blocks in use, free blocks
                        with a key, requests running, waiting, blocks that two or more share
    """

    num_cached_tokens: Int64Array
    num_hit_tokens: Int64Array
    num_fetched_tokens: Int64Array
    num_tier_blocks: Int64Array
    fetch_s: Float64Array
    replica: Int64Array
    num_computed_tokens: Int64Array
    num_discarded_tokens: Int64Array
    num_preemptions: Int64Array
    admitted_s: Float64Array
    first_token_s: Float64Array
    finished_s: Float64Array
    gap_edges_s: Float64Array
    num_gaps: Int64Array
    samples: tuple[Float64Array, ...]
    num_steps: int
    num_evicted_blocks: int
    num_block_operations: int

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Return which requests could never be served by this pool (bool [requests])."""
        return np.isnan(self.finished_s)

    def gap_percentile_s(self, share: float) -> float:
        """Return the time between tokens that `share` (0..1) of all are not above; NaN without."""
        total = int(self.num_gaps.sum())
        if total == 0:
            return float("nan")
        place = int(np.searchsorted(np.cumsum(self.num_gaps), share * total))
        return float(self.gap_edges_s[min(place, len(self.gap_edges_s) - 1)])


def serve_timed(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int,
    pool: PoolRules,
    scheduler: SchedulerRules,
    seconds: StepSeconds,
    num_answer_tokens: Int64Array,
    arrival_s: Float64Array | None = None,
    replicas: Replicas = ONE_REPLICA,
    tiers: Tiers = NO_TIERS,
    max_samples: int = 4_096,
) -> TimedServing:
    """Serve a trace in time from pools of `capacity_blocks` usable blocks (one less than vLLM's).

    `num_answer_tokens` (int64 [requests], 1 or more) are generated; those that the trace doesn't
    hold take blocks but no keys. `arrival_s` replaces the trace's own times, for other loads.
    Each of the `replicas` has a pool and `tiers` of its own. Raises UsageError for a pool of
    several groups, unknown arrivals, or tables that are too short.
    """
    _check(trace, namespaces, pool, scheduler, seconds, num_answer_tokens)
    arrivals = trace.arrival_s if arrival_s is None else arrival_s
    if np.isnan(arrivals).any():
        raise UsageError("a request has no arrival time; a timed replay needs all of them")
    order = np.argsort(arrivals, kind="stable").astype(np.int64)
    replica_of = _replica_of(replicas, trace.num_requests)
    queue_room = trace.num_requests
    if replicas.rule == "given":
        queue_room = int(np.bincount(replica_of, minlength=1).max(initial=0))
    num_tokens = trace.num_prompt_tokens + num_answer_tokens - 1
    width = int((-(-num_tokens // trace.block_size)).max(initial=0)) + 1
    nodes = _nodes(trace, namespaces)
    number = replicas.num_replicas
    num_slots = max(min(scheduler.max_num_seqs, queue_room), 1)
    counts = np.zeros((trace.num_requests, 6), dtype=np.int64)
    times_s = np.full((trace.num_requests, 4), -1.0)
    gaps = np.zeros(_NUM_GAP_BINS, dtype=np.int64)
    samples = np.zeros((number, max_samples, 6))
    totals = np.zeros((number, 6), dtype=np.int64)
    ring = np.arange(capacity_blocks + 1, dtype=np.int32)
    first = float(arrivals.min(initial=np.inf))
    last = float(arrivals.max(initial=-np.inf))
    state = np.zeros((number, 10), dtype=np.int64)
    state[:, 0] = capacity_blocks
    state[:, 5] = num_slots
    state[:, 8] = -1
    num_tiers = len(tiers.tiers)
    tier_ring = np.zeros((number, (nodes.num_keys if num_tiers else 0) + num_tiers), np.int32)
    tier_ring[:, tier_ring.shape[1] - num_tiers :] = nodes.num_keys + np.arange(num_tiers)
    fetched = np.zeros((trace.num_requests, num_tiers), dtype=np.int64)
    fetch_s = np.zeros(trace.num_requests)

    def of_each(row: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(row[None], number, axis=0)

    serve: Any = routed_kernels.serve_routed
    serve(
        order,
        _RULES[replicas.rule],
        np.asarray([*replicas.weights, 0.0, 0.0, 0.0][:3], dtype=np.float64),
        replica_of,
        np.asarray(arrivals - first, dtype=np.float64),
        *nodes.arrays,
        trace.num_blocks.astype(np.int64),
        trace.num_prompt_tokens,
        np.asarray(num_answer_tokens, dtype=np.int64),
        trace.reads_cache,
        trace.block_size,
        pool.release.free_order == "unhashed-first",
        bool(pool.dropping_groups),
        scheduler.max_num_batched_tokens,
        scheduler.max_num_seqs,
        scheduler.max_model_tokens,
        scheduler.reserves_whole_prompt,
        scheduler.long_prefill_tokens,
        scheduler.watermark_blocks,
        seconds.flops_until,
        float(seconds.sample_flops),
        seconds.s_per_flop,
        seconds.moved_s,
        float(seconds.token_s),
        seconds.overhead_s,
        of_each(np.roll(ring, -1)),
        of_each(np.roll(ring, 1)),
        np.zeros((number, capacity_blocks + 1), dtype=np.int32),
        np.full((number, capacity_blocks + 1), -1, dtype=np.int64),
        np.zeros((number, capacity_blocks + 1), dtype=np.int32),
        np.zeros((number, capacity_blocks + 1), dtype=np.int32),
        np.zeros((number, nodes.num_keys), dtype=np.int32),
        np.zeros(width, dtype=np.int64),
        np.empty((number, num_slots, width), dtype=np.int32),
        np.empty((number, num_slots, width), dtype=np.int64),
        np.zeros((number, num_slots), dtype=np.int64),
        of_each(np.arange(num_slots, dtype=np.int64)),
        np.zeros((number, num_slots, 6), dtype=np.int64),
        np.zeros((number, queue_room + 1), dtype=np.int64),
        trace.num_prompt_tokens.copy(),
        counts,
        times_s,
        gaps,
        float(GAPS_PER_OCTAVE),
        samples,
        max(last - first, 0.0) / max(max_samples // 2, 1),
        totals,
        np.zeros((number, queue_room), dtype=np.int64),
        np.zeros(number, dtype=np.int64),
        state,
        np.zeros((number, 2)),
        np.asarray([tier.num_blocks for tier in tiers.tiers], dtype=np.int64),
        np.asarray([tier.token_s for tier in tiers.tiers], dtype=np.float64),
        np.asarray([tier.fixed_s for tier in tiers.tiers], dtype=np.float64),
        max(tiers.min_blocks, 1),
        tiers.writes_through,
        tiers.promotes,
        np.full((number, nodes.num_keys if num_tiers else 0), -1, dtype=np.int64),
        tier_ring,
        tier_ring.copy(),
        np.zeros((number, num_tiers), dtype=np.int64),
        fetched,
        fetch_s,
        np.zeros((number, 4)),
    )
    times_s[times_s < 0] = np.nan
    times_s[counts[:, 0] < 0] = np.nan
    times_s += first
    taken = tuple(samples[place, : int(totals[place, 2])] for place in range(number))
    for rows in taken:
        rows[:, 0] += first
    return TimedServing(
        num_cached_tokens=counts[:, 0],
        num_hit_tokens=counts[:, 1],
        num_fetched_tokens=counts[:, 5],
        num_tier_blocks=fetched,
        fetch_s=fetch_s,
        replica=replica_of,
        num_computed_tokens=counts[:, 2],
        num_discarded_tokens=counts[:, 3],
        num_preemptions=counts[:, 4],
        admitted_s=times_s[:, 0],
        first_token_s=times_s[:, 1],
        finished_s=times_s[:, 3],
        gap_edges_s=GAP_EDGES_S,
        num_gaps=gaps,
        samples=taken,
        num_steps=int(totals[:, 0].sum()),
        num_evicted_blocks=int(totals[:, 1].sum()),
        num_block_operations=int(totals[:, 4:].sum()),
    )


def _replica_of(replicas: Replicas, num_requests: int) -> Int64Array:
    if replicas.num_replicas < 1:
        raise UsageError(f"{replicas.num_replicas} replicas; expected 1 or more")
    if replicas.replica_of is None:
        if replicas.rule == "given" and replicas.num_replicas > 1:
            raise UsageError("nobody says which replica gets a request")
        return np.zeros(num_requests, dtype=np.int64)
    found = np.asarray(replicas.replica_of, dtype=np.int64).copy()
    if len(found) != num_requests:
        raise UsageError(f"replica_of: {len(found)} entries; expected {num_requests}")
    if num_requests and not 0 <= int(found.min()) <= int(found.max()) < replicas.num_replicas:
        raise UsageError(f"a request goes to a replica that isn't one of {replicas.num_replicas}")
    return found


def _check(
    trace: BlockTrace,
    namespaces: Int32Array,
    pool: PoolRules,
    scheduler: SchedulerRules,
    seconds: StepSeconds,
    num_answer_tokens: Int64Array,
) -> None:
    if len(pool.groups) != 1 or pool.groups[0].kind != "full":
        raise UsageError("the timed replay knows pools of one full attention group only")
    if trace.block_size != pool.hash_block_size:
        raise UsageError(
            f"the trace has blocks of {trace.block_size} tokens, the pool {pool.hash_block_size}"
        )
    for name, column in (("namespaces", namespaces), ("num_answer_tokens", num_answer_tokens)):
        if len(column) != trace.num_requests:
            raise UsageError(f"{name}: {len(column)} entries; expected {trace.num_requests}")
    if (num_answer_tokens < 1).any() or (trace.num_prompt_tokens < 1).any():
        raise UsageError("a request has an empty prompt or answer; expected 1 token or more each")
    longest = int(trace.num_prompt_tokens.max(initial=0))
    if longest >= scheduler.max_model_tokens:
        raise UsageError(
            f"a prompt has {longest} tokens; with answers the longest context is "
            f"{scheduler.max_model_tokens}"
        )
    positions = int((trace.num_prompt_tokens + num_answer_tokens).max(initial=0))
    if len(seconds.flops_until) < min(positions, scheduler.max_model_tokens) + 1:
        raise UsageError(
            f"flops_until ends at {len(seconds.flops_until) - 1} of {positions} tokens"
        )
    for table in (seconds.s_per_flop, seconds.moved_s, seconds.overhead_s):
        if len(table) < scheduler.max_num_batched_tokens + 1:
            raise UsageError(f"a table of step seconds ends at {len(table) - 1} tokens of a step")


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The tree with nodes that only one namespace has, and the first key of each."""

    arrays: tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
    num_keys: int


def _nodes(trace: BlockTrace, namespaces: Int32Array) -> _Nodes:
    levels = lru_kernels.levels(trace.tree.parent)
    own = own_nodes(trace, namespaces, levels, compiled=True)
    first_key = np.zeros(len(own.num_blocks) + 1, dtype=np.int64)
    np.cumsum(own.num_blocks, out=first_key[1:])
    columns = (own.ends, own.parent, own.num_blocks, own.depth_blocks, first_key)
    return _Nodes(arrays=columns, num_keys=int(first_key[-1]))
