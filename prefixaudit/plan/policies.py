"""Other eviction policies than the engine's, and Belady's rule as the ceiling of all of them.

Requests are served one after another. A pool of blocks evicts the tail of the leaf (of the tree of
what it holds) with the smallest rank, so that a prefix never leaves before its continuation. With
`lru` that is plain LRU. A block's rank is that of its run; a run that comes back in part is as
young as its last insertion.

belady   evicts what is looked up again last, or never. Ancestors are looked up no later than their
         continuations, so the leaf rule costs nothing: no policy hits more at that capacity. It may
         drop a request's own blocks at once, which an engine can't while the request runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.plan import policy_kernels
from prefixaudit.pool.lru import lookup_limits, prepare
from prefixaudit.pool.separate import split_nodes

POLICY_TITLES: Final[dict[str, str]] = {
    "lru": "least recently used",
    "fifo": "first in, first out",
    "lfu": "least frequently used, then least recently",
    "slru": "runs used once go before runs used again, each by recency",
    "belady": "what is needed again last; not a policy, but the ceiling of all",
}
_NUMBERS: Final = {
    "lru": policy_kernels.LRU,
    "fifo": policy_kernels.FIFO,
    "lfu": policy_kernels.LFU,
    "slru": policy_kernels.SLRU,
    "belady": policy_kernels.BELADY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyHits:
    """Blocks that each request hits (int64 [requests]) under one policy at one capacity."""

    policy: str
    capacity_blocks: int
    num_hit_blocks: Int64Array


# What goes first hangs on when or how often a block was stored, and a run's tail that went and came
# back was stored later than its front: runs of one block. Elsewhere a run's blocks have one rank.
_RANKED_BY_STORING: Final = frozenset({"fifo", "lfu", "slru"})


def hits_by_policy(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    policies: Sequence[str],
    capacities_blocks: Sequence[int],
    min_recomputed_tokens: int = 1,
    order: Int64Array | None = None,
) -> tuple[PolicyHits, ...]:
    """Return the hits of every policy at every capacity, policies first.

    Raises UsageError for an unknown policy, ValueError for a negative capacity.
    """
    for name in policies:
        if name not in _NUMBERS:
            raise UsageError(unknown_name("policy to plan with", name, _NUMBERS))
    if "belady" in policies:
        trace = _cut_at_limits(trace, min_recomputed_tokens)
    of_blocks = None
    if _RANKED_BY_STORING & set(policies):
        of_blocks = prepare(of_single_blocks(trace), namespaces, min_recomputed_tokens, order)
    of_runs = prepare(trace, namespaces, min_recomputed_tokens, order)
    num_requests = len(of_runs.ends)
    offsets = np.zeros(num_requests, dtype=np.int64)
    next_use = np.empty(0, dtype=np.int64)
    if "belady" in policies:
        offsets, next_use = _next_uses(of_runs)
    found = []
    for name in policies:
        replay = of_blocks if of_blocks is not None and name in _RANKED_BY_STORING else of_runs
        kernel: Any = replay.kernel(policy_kernels.serve_by_rank)
        num_nodes = len(replay.parent)
        for capacity in capacities_blocks:
            if capacity < 0:
                raise ValueError(f"capacity of {capacity} blocks; expected 0 or more")
            hits = np.zeros(num_requests, dtype=np.int64)
            zeros = np.zeros((5, num_nodes), dtype=np.int64)
            kernel(
                replay.order,
                replay.ends,
                replay.limits,
                replay.parent,
                replay.size,
                replay.depth,
                _NUMBERS[name],
                name == "belady",
                capacity,
                offsets,
                next_use,
                zeros[0],
                zeros[1],
                zeros[2],
                zeros[3],
                zeros[4],
                np.full(num_nodes, -1, dtype=np.int64),
                np.zeros(replay.most_levels + 1, dtype=np.int64),
                hits,
            )
            found.append(PolicyHits(policy=name, capacity_blocks=capacity, num_hit_blocks=hits))
    return tuple(found)


def of_single_blocks(trace: BlockTrace) -> BlockTrace:
    """Return the trace with runs of one block each."""
    num_cuts = trace.tree.num_blocks.astype(np.int64) - 1
    node = np.repeat(np.arange(len(num_cuts), dtype=np.int64), num_cuts)
    before = np.repeat(np.cumsum(num_cuts) - num_cuts, num_cuts)
    return split_nodes(trace, node, np.arange(len(node), dtype=np.int64) - before + 1)


def _cut_at_limits(trace: BlockTrace, min_recomputed_tokens: int) -> BlockTrace:
    """Return the trace with runs cut where lookups end: blocks of a run have one next use then."""
    limits = lookup_limits(trace, min_recomputed_tokens)
    ending = np.flatnonzero((limits > 0) & (limits < trace.num_blocks))
    node, end = trace.node[ending].astype(np.int64), limits[ending]
    while len(node):
        above = trace.tree.depth_blocks[node] >= end
        if not above.any():
            break
        node[above] = trace.tree.parent[node[above]]
    return split_nodes(trace, node, end - trace.tree.depth_blocks[node])


def _next_uses(replay: Any) -> tuple[Int64Array, Int64Array]:
    from prefixaudit.pool import lru_kernels

    level = replay.kernel(lru_kernels.levels)(replay.parent)
    inside = replay.ends >= 0
    lengths = np.zeros(len(replay.ends), dtype=np.int64)
    lengths[inside] = level[replay.ends[inside]]
    offsets = np.cumsum(lengths) - lengths
    next_use = np.zeros(int(lengths.sum()), dtype=np.int64)
    replay.kernel(policy_kernels.next_uses)(
        replay.order,
        replay.ends,
        replay.limits,
        replay.parent,
        replay.depth,
        offsets,
        next_use,
        np.full(len(replay.parent), len(replay.order), dtype=np.int64),
    )
    return offsets, next_use
