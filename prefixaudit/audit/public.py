"""Public prefixes in a trace: what is declared, where it stands in the tree, and what is proposed.

Sharing inside a public prefix leaks nothing. Every beginning of a declared prefix is public too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.identities import table_of
from prefixaudit.core.report import PrefixProposal
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.pool.separate import numbered, separated, split_nodes


def public_nodes(
    trace: BlockTrace, public_tokens: Int64Array
) -> tuple[BlockTrace, NDArray[np.bool_]]:
    """Return the trace cut where public prefixes end, and which of its nodes are public.

    A block is public where all its tokens are. `public_tokens` is int64 [requests].
    """
    num_public = np.minimum(public_tokens // trace.block_size, trace.num_blocks)
    readers = np.flatnonzero(num_public > 0)
    if not len(readers):
        return trace, np.zeros(len(trace.tree.parent), dtype=np.bool_)
    places = np.unique(np.stack([trace.node[readers], num_public[readers]], axis=1), axis=0)
    node, end = places[:, 0].astype(np.int64), places[:, 1].astype(np.int64)
    tree = trace.tree
    while True:
        above = tree.depth_blocks[node] >= end
        if not above.any():
            break
        node[above] = tree.parent[node[above]]
    cut = split_nodes(trace, node, end - tree.depth_blocks[node])
    # The same places in the tree that was cut: the node that ends there, and all above it.
    ends_at = cut.tree.depth_blocks + cut.tree.num_blocks
    is_public = np.zeros(len(cut.tree.parent), dtype=np.bool_)
    inside = np.minimum(public_tokens // cut.block_size, cut.num_blocks)
    node, end = cut.node[readers].astype(np.int64), inside[readers]
    while len(node):
        done = ends_at[node] <= end
        is_public[node[done]] = True
        node = cut.tree.parent[node].astype(np.int64)
        keep = node >= 0
        if done.any():
            keep &= ~(done & (is_public[np.maximum(node, 0)]))
        node, end = node[keep], end[keep]
        pairs = np.unique(np.stack([node, end], axis=1), axis=0)
        node, end = pairs[:, 0], pairs[:, 1]
    return cut, is_public


def propose_prefixes(
    trace: BlockTrace, *, min_tenants: int, public_tokens: Int64Array, limit: int = 20
) -> tuple[PrefixProposal, ...]:
    """Return the longest beginnings that `min_tenants` tenants or more share, most used first.

    Only requests of known tenants count, and only what lies beyond the declared `public_tokens`
    (int64 [requests]) is proposed. Raises ValueError for fewer than 2 tenants.
    """
    if min_tenants < 2:
        raise ValueError(f"{min_tenants} tenants; expected 2 or more")
    codes = table_of(trace.identities).codes("tenant")[trace.identity]
    known = codes > 0
    tree = trace.tree
    num_nodes = len(tree.parent)
    if not num_nodes or len(np.unique(codes[known])) < min_tenants:
        return ()
    own, origin = separated(trace, np.zeros(num_nodes, dtype=np.int64), [numbered(codes)])
    ends = own.node[known & (own.node >= 0)]
    passed = _summed_up(own.tree.parent, np.bincount(ends, minlength=len(own.tree.parent)))
    num_tenants = np.bincount(origin[passed > 0], minlength=num_nodes)
    num_requests = np.bincount(origin, weights=passed, minlength=num_nodes).astype(np.int64)
    is_shared = num_tenants >= min_tenants
    goes_on = np.zeros(num_nodes, dtype=np.bool_)
    below = is_shared & (tree.parent >= 0)
    goes_on[tree.parent[below]] = True
    readers = np.flatnonzero(public_tokens > 0)
    declared = np.zeros(num_nodes, dtype=np.bool_)
    if len(readers):
        cut, is_public = public_nodes(trace, public_tokens)
        public_blocks = np.zeros(len(tree.labels), dtype=np.bool_)
        for node in np.flatnonzero(is_public).tolist():
            first = int(cut.tree.first_block[node])
            public_blocks[first : first + int(cut.tree.num_blocks[node])] = True
        # Declared as a whole where its last block is.
        declared = public_blocks[tree.first_block + tree.num_blocks - 1]
    found = np.flatnonzero(is_shared & ~goes_on & ~declared)
    by_use = found[np.lexsort((-tree.depth_blocks[found], -num_requests[found]))]
    return tuple(
        PrefixProposal(
            hash=_hash_of(trace, int(node)),
            num_tokens=int(tree.depth_blocks[node] + tree.num_blocks[node]) * trace.block_size,
            num_tenants=int(num_tenants[node]),
            num_requests=int(num_requests[node]),
        )
        for node in by_use[:limit]
    )


def _summed_up(parent: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each node's count with those of all nodes below it (int64 [nodes])."""
    above = parent.tolist()
    sums = counts.tolist()
    for node in range(len(sums) - 1, -1, -1):
        if above[node] >= 0:
            sums[above[node]] += sums[node]
    return np.array(sums, dtype=np.int64)


def _hash_of(trace: BlockTrace, node: int) -> str:
    last = int(trace.tree.first_block[node]) + int(trace.tree.num_blocks[node]) - 1
    label: bytes = trace.tree.labels[last].astype("<u8").tobytes()
    return label.hex()
