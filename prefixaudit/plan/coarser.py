"""The same trace in larger blocks: what another block size would hit, from one tokenization.

A block of k blocks is shared where all k are, so it is the last of the k that names it. Blocks
smaller than the trace's can't be made: where inside a block two prompts part isn't in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prefixaudit.core.trace import BlockTrace, BlockTree
from prefixaudit.errors import UsageError
from prefixaudit.plan import kernels


def in_blocks_of(trace: BlockTrace, block_size: int) -> BlockTrace:
    """Return the trace in blocks of `block_size` tokens, full ones only; partial ids are dropped.

    Raises UsageError for a size that isn't a multiple of the trace's.
    """
    if block_size == trace.block_size:
        return trace
    if block_size < 1 or block_size % trace.block_size:
        raise UsageError(
            f"block size {block_size}: this log is known in blocks of {trace.block_size} tokens; "
            "expected a multiple of it"
        )
    factor = block_size // trace.block_size
    tree = trace.tree
    depth = tree.depth_blocks.astype(np.int64)
    size = (depth + tree.num_blocks) // factor - depth // factor
    is_kept = size > 0
    nearest = np.full(len(is_kept), -1, dtype=np.int64)
    kernels.nearest_kept(tree.parent, is_kept, nearest)
    number = np.cumsum(is_kept) - 1
    kept = np.flatnonzero(is_kept)
    above = np.where(tree.parent[kept] < 0, -1, nearest[np.maximum(tree.parent[kept], 0)])
    sizes = size[kept]
    first = np.cumsum(sizes) - sizes
    # The fine block that ends each coarse one.
    within = np.arange(int(sizes.sum())) - np.repeat(first, sizes)
    place = (depth[kept] // factor)[np.repeat(np.arange(len(kept)), sizes)] + within
    node_of = np.repeat(kept, sizes)
    fine = tree.first_block[node_of] + (place + 1) * factor - 1 - depth[node_of]
    inside = trace.node >= 0
    end = np.full(trace.num_requests, -1, dtype=np.int64)
    end[inside] = nearest[trace.node[inside]]
    node = np.where(end < 0, -1, number[np.maximum(end, 0)]) if len(number) else end
    num_blocks = trace.num_blocks // factor
    cached = trace.num_prompt_tokens + trace.num_generated_tokens
    return replace(
        trace,
        block_size=block_size,
        tree=BlockTree(
            parent=np.where(above < 0, -1, number[np.maximum(above, 0)]).astype(np.int32)
            if len(kept)
            else np.empty(0, dtype=np.int32),
            first_block=first.astype(np.int64),
            num_blocks=sizes.astype(np.int32),
            depth_blocks=(depth[kept] // factor).astype(np.int32),
            labels=tree.labels[fine],
        ),
        node=node.astype(np.int32),
        num_blocks=np.minimum(num_blocks, cached // block_size).astype(np.int32),
        partial_ids=np.zeros_like(trace.partial_ids),
        has_partial_id=np.zeros_like(trace.has_partial_id),
    )
