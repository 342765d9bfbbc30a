"""What a trace's block ids can say about an engine with finer blocks: a range, not a figure.

Ids of 512 tokens say that two prompts part within a block, not where. An engine with blocks of 16
may hit up to 496 tokens more there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from prefixaudit.chain.partial import with_partial_blocks
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.pool.lru import Replay, hits_at, prepare

_NEVER: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRange:
    """Cached tokens of each request (int64 [requests]) in an endless pool, at least and at most."""

    block_size: int
    at_least_tokens: Int64Array
    at_most_tokens: Int64Array


def finer_block_hits(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    block_size: int,
    min_recomputed_tokens: int,
    order: Int64Array | None = None,
) -> HitRange:
    """Return what an endless pool with finer blocks hits, as far as the trace can tell.

    At least: the tokens that ids vouch for, a partial last block with the same id among them. At
    most: where an earlier request went on from there, all but one of the next block's tokens too.
    Both keep the last-token rule. Where nobody went on, the two are equal. Raises ValueError for a
    block size that does not divide the trace's.
    """
    if block_size < 1 or trace.block_size % block_size:
        raise ValueError(
            f"block size {block_size}; expected a divisor of the trace's {trace.block_size}"
        )
    if order is None:
        order = trace.replay_order()
    ids = with_partial_blocks(trace)
    replay = prepare(ids, namespaces, 0, order)
    [matched] = hits_at(ids, namespaces, [None], min_recomputed_tokens=0, order=order)
    served = np.empty(len(order), dtype=np.int64)
    served[order] = np.arange(len(order))
    goes_on = _earliest_continuation(replay, namespaces, served, matched) < served

    tokens = trace.num_prompt_tokens
    known = np.minimum(matched * trace.block_size, tokens)
    possible = np.where(goes_on, np.minimum(known + trace.block_size - 1, tokens), known)
    limit = np.maximum(0, tokens - min_recomputed_tokens)
    limit = np.where(trace.reads_cache, limit, 0)
    return HitRange(
        block_size=block_size,
        at_least_tokens=np.minimum(known, limit) // block_size * block_size,
        at_most_tokens=np.minimum(possible, limit) // block_size * block_size,
    )


def _earliest_continuation(
    replay: Replay, namespaces: Int32Array, served: Int64Array, matched: Int64Array
) -> Int64Array:
    """Return when (place in the order) a request first went on behind each one's matched blocks."""
    num_nodes = len(replay.parent)
    inside = replay.ends >= 0
    first_passed = np.full(num_nodes, _NEVER, dtype=np.int64)
    np.minimum.at(first_passed, replay.ends[inside], served[inside])
    went_on = np.full(num_nodes, _NEVER, dtype=np.int64)
    # Children before parents: a child begins deeper than its parent.
    by_depth = np.argsort(-replay.depth, kind="stable")
    bounds = np.flatnonzero(np.diff(replay.depth[by_depth], prepend=-1, append=-1))
    for start, end in pairwise(bounds.tolist()):
        nodes = by_depth[start:end]
        first_passed[nodes] = np.minimum(first_passed[nodes], went_on[nodes])
        parents = replay.parent[nodes]
        np.minimum.at(went_on, parents[parents >= 0], first_passed[nodes[parents >= 0]])
    # The node that ends where the matched blocks end: two requests part at the ends of nodes only.
    at = replay.ends.copy()
    while True:
        too_deep = (at >= 0) & (replay.depth[at] >= matched) if num_nodes else at >= 0
        if not too_deep.any():
            break
        at[too_deep] = replay.parent[at[too_deep]]
    _, group = np.unique(namespaces, return_inverse=True)
    first_of_group = np.full(len(served), _NEVER, dtype=np.int64)
    np.minimum.at(first_of_group, group[inside], served[inside])
    result = first_of_group[group] if len(group) else served
    return np.where(at >= 0, went_on[at] if num_nodes else _NEVER, result)
