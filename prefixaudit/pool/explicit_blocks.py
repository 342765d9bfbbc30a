"""The block ids of a request, read off the tree of a BlockTrace, and donors put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import ROOT, BlockTrace, Int32Array, Int64Array


def block_ids(trace: BlockTrace, position: int) -> Int64Array:
    """Return the ids of a request's full blocks, answer included (int64 [num_blocks])."""
    tree = trace.tree
    ids = np.empty(int(trace.num_blocks[position]), dtype=np.int64)
    node = int(trace.node[position])
    while node != ROOT:
        first, size = int(tree.first_block[node]), int(tree.num_blocks[node])
        depth = int(tree.depth_blocks[node])
        ids[depth : depth + size] = np.arange(first, first + size, dtype=np.int64)
        node = int(tree.parent[node])
    return ids


def lookups_of(donor_blocks: Sequence[Int32Array], block_size: int) -> Lookups:
    """Return Lookups from the donor of each hit block of each request; runs of one donor join."""
    offsets = np.zeros(len(donor_blocks) + 1, dtype=np.int64)
    donors: list[Int32Array] = []
    lengths: list[Int64Array] = []
    for position, of_blocks in enumerate(donor_blocks):
        starts = np.flatnonzero(np.diff(of_blocks, prepend=np.int32(-1)))
        offsets[position + 1] = offsets[position] + len(starts)
        donors.append(of_blocks[starts])
        lengths.append(np.diff(starts, append=len(of_blocks)).astype(np.int64))
    return Lookups(
        num_cached_tokens=np.fromiter(
            (len(of_blocks) * block_size for of_blocks in donor_blocks),
            dtype=np.int64,
            count=len(donor_blocks),
        ),
        donor_offsets=offsets,
        donors=np.concatenate(donors) if donors else np.empty(0, dtype=np.int32),
        donor_num_tokens=(
            np.concatenate(lengths) * block_size if lengths else np.empty(0, dtype=np.int64)
        ),
    )
