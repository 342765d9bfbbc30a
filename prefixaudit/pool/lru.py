"""Exact LRU hits: for every capacity in one pass, and request by request at chosen ones.

The pool that is modelled: requests are served one after another. A request looks up the longest
chain of resident blocks from its front; then all its blocks, prompt and cached answer, are touched
or stored, tail first, so that a prefix never leaves before its continuation. A block's ancestors
are then always above it in the LRU order, a pool of C blocks holds the C topmost ones, and the
number of blocks above a block (its stack distance, Mattson et al. 1970) says at which capacities
it is a hit.

A request of more blocks than the pool has leaves its front there, as plain LRU does. A lookup never
covers the last `min_recomputed_tokens` of a prompt, nor the answer. A request that reads no cache
looks nothing up; its blocks are computed and stored all the same.

The donor of a block is the request that computed and stored it last: a request stores every block
behind its hits, also one that the pool still held (the last-token rule, an answer).

What engines do otherwise (pinned blocks, junk tail blocks, groups) is left to their own pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.pool import HitCurve, Lookups
from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.pool import lru_kernels
from prefixaudit.pool.separate import own_nodes

ENDLESS: Final = int(np.iinfo(np.int64).max)
# Below this many requests times levels, plain Python is done before the compiled code is loaded.
_FEW_STEPS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace made ready: nodes that only one namespace passes, and how far each lookup may go."""

    compiled: bool
    order: Int64Array
    ends: NDArray[Any]
    limits: Int64Array
    parent: NDArray[Any]
    size: NDArray[Any]
    depth: NDArray[Any]
    most_levels: int

    @property
    def num_blocks(self) -> int:
        return int(self.size.sum(dtype=np.int64))

    def kernel(self, kernel: Any) -> Any:
        return kernel if self.compiled else kernel.py_func


def lookup_limits(trace: BlockTrace, min_recomputed_tokens: int) -> Int64Array:
    """Return how many blocks each request's lookup can hit at most (int64 [requests])."""
    reusable_tokens = np.maximum(0, trace.num_prompt_tokens - min_recomputed_tokens)
    limits = np.minimum(trace.num_blocks, reusable_tokens // trace.block_size)
    return np.where(trace.reads_cache, limits, 0).astype(np.int64)


def replay_lru(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int | None,
    min_recomputed_tokens: int,
    flops_by_depth: Float64Array | None,
    order: Int64Array | None = None,
    with_donors: bool = True,
) -> tuple[HitCurve, Lookups]:
    """Return the hits at every capacity, and hits and donors of each request at one.

    namespaces      int32 [requests]; requests of different numbers share nothing
    capacity_blocks the pool of the Lookups; None is endless
    flops_by_depth  float64 [at least the longest lookup, in blocks]: prefill FLOPs that a hit on
                    block j of a prompt spares, by j alone; None leaves the FLOPs curve empty
    order           int64 [requests]: positions in the order served; the trace's by default

    Without `with_donors` the Lookups name none. Raises ValueError for a negative capacity, columns
    of the wrong length, or a `flops_by_depth` that is too short.
    """
    curve, [lookups] = replay_lru_at(
        trace,
        namespaces,
        [capacity_blocks],
        min_recomputed_tokens=min_recomputed_tokens,
        flops_by_depth=flops_by_depth,
        order=order,
        with_donors=with_donors,
    )
    return curve, lookups


def replay_lru_at(
    trace: BlockTrace,
    namespaces: Int32Array,
    capacities_blocks: Sequence[int | None],
    *,
    min_recomputed_tokens: int,
    flops_by_depth: Float64Array | None,
    order: Int64Array | None = None,
    with_donors: bool = True,
) -> tuple[HitCurve, list[Lookups]]:
    """Return what `replay_lru` does, with Lookups at several capacities by the same pass.

    Donors are those of the first capacity; the others' Lookups name none.
    """
    numbers = _capacities(capacities_blocks)
    replay = prepare(trace, namespaces, min_recomputed_tokens, order)
    longest = int(replay.limits.max(initial=0))
    if flops_by_depth is not None and len(flops_by_depth) < longest:
        raise ValueError(f"FLOPs of {len(flops_by_depth)} depths; expected {longest} or more")
    block_flops = np.empty(0) if flops_by_depth is None else flops_by_depth
    curvature = np.zeros(replay.num_blocks + 2, dtype=np.int64)
    flops = np.zeros(0 if flops_by_depth is None else replay.num_blocks + 2, dtype=np.float64)
    hits = _run(replay, numbers, block_flops, curvature, flops)
    np.cumsum(curvature, out=curvature)
    np.cumsum(curvature, out=curvature)
    np.cumsum(flops, out=flops)
    curve = HitCurve(num_cached_blocks=curvature[:-1], flops_saved=flops[:-1])
    return curve, [
        _with_donors(replay, row, trace.block_size)
        if with_donors and not place
        else _without_donors(row, trace.block_size)
        for place, row in enumerate(hits)
    ]


def hits_at(
    trace: BlockTrace,
    namespaces: Int32Array,
    capacities: Sequence[int | None],
    *,
    min_recomputed_tokens: int,
    order: Int64Array | None = None,
) -> Int64Array:
    """Return the blocks that each request hits at each capacity (int64 [capacities, requests]).

    None is an endless pool. Raises ValueError for negative capacities or columns of the wrong
    length.
    """
    replay = prepare(trace, namespaces, min_recomputed_tokens, order)
    numbers = _capacities(capacities)
    curvature = np.zeros(replay.num_blocks + 2, dtype=np.int64)
    return _run(replay, numbers, np.empty(0), curvature, np.empty(0))


def _capacities(capacities_blocks: Sequence[int | None]) -> Int64Array:
    for capacity in capacities_blocks:
        if capacity is not None and capacity < 0:
            raise ValueError(f"capacity of {capacity} blocks; expected 0 or more")
    numbers = [ENDLESS if capacity is None else capacity for capacity in capacities_blocks]
    return np.array(numbers, dtype=np.int64)


def prepare(
    trace: BlockTrace,
    namespaces: Int32Array,
    min_recomputed_tokens: int,
    order: Int64Array | None,
) -> Replay:
    if order is None:
        order = trace.replay_order()
    for name, column in (("namespaces", namespaces), ("order", order)):
        if len(column) != trace.num_requests:
            raise ValueError(f"{name}: {len(column)} entries; expected {trace.num_requests}")
    if min_recomputed_tokens < 0:
        raise ValueError(f"{min_recomputed_tokens} recomputed tokens; expected 0 or more")
    tree = trace.tree
    few = len(tree.parent) + trace.num_requests < _FEW_STEPS
    level = (lru_kernels.levels.py_func if few else lru_kernels.levels)(tree.parent)
    inside = trace.node >= 0
    # Total length of all paths, so that a few long ones count as well.
    compiled = bool(level[trace.node[inside]].sum() >= _FEW_STEPS) if few else True
    own = own_nodes(trace, namespaces, level, compiled=compiled)
    return Replay(
        compiled=compiled,
        order=order,
        ends=own.ends,
        limits=lookup_limits(trace, min_recomputed_tokens),
        parent=own.parent,
        size=own.num_blocks,
        depth=own.depth_blocks,
        most_levels=int(level.max(initial=0)),
    )


def _run(
    replay: Replay,
    capacities: Int64Array,
    block_flops: Float64Array,
    curvature: Int64Array,
    flops: Float64Array,
) -> Int64Array:
    hits = np.zeros((len(capacities), len(replay.ends)), dtype=np.int64)
    replay.kernel(lru_kernels.stack_distances)(
        replay.order,
        replay.ends,
        replay.limits,
        replay.parent,
        replay.size,
        replay.depth,
        replay.most_levels,
        capacities,
        block_flops,
        curvature,
        flops,
        hits,
    )
    return hits


def _without_donors(hits: Int64Array, block_size: int) -> Lookups:
    return Lookups(
        num_cached_tokens=hits * block_size,
        donor_offsets=np.zeros(len(hits) + 1, dtype=np.int64),
        donors=np.empty(0, dtype=np.int32),
        donor_num_tokens=np.empty(0, dtype=np.int64),
    )


def _with_donors(replay: Replay, hits: Int64Array, block_size: int) -> Lookups:
    num_requests = len(replay.ends)
    first, counts, donors, blocks = replay.kernel(lru_kernels.find_donors)(
        replay.order,
        replay.ends,
        hits,
        replay.parent,
        replay.size,
        replay.depth,
        replay.most_levels,
        num_requests,
    )
    offsets = np.zeros(num_requests + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    # From the order served to the order of the trace.
    place = np.arange(len(donors), dtype=np.int64) + np.repeat(first - offsets[:-1], counts)
    return Lookups(
        num_cached_tokens=hits * block_size,
        donor_offsets=offsets,
        donors=donors[place],
        donor_num_tokens=blocks[place] * block_size,
    )
