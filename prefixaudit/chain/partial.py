"""What a trace's ids say beyond full blocks: partial last blocks, and blocks finer than its ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prefixaudit.core.trace import BlockTrace, BlockTree


def with_partial_blocks(trace: BlockTrace) -> BlockTrace:
    """Return the trace with partial last ids as blocks like the others, prompts rounded to blocks.

    A partial block is matched by the same id after the same full blocks only; it takes a block of
    the pool. Prompt lengths become their number of ids times the block size, so that hits are
    matched ids. Without partial ids, prompts are cut to their full blocks.
    """
    full_blocks = trace.num_prompt_tokens // trace.block_size
    has_partial = trace.has_partial_id
    tokens = (full_blocks + has_partial) * trace.block_size
    if not has_partial.any():
        return replace(trace, num_prompt_tokens=tokens)
    tree = trace.tree
    pairs = np.empty(int(has_partial.sum()), dtype=[("node", np.int32), ("id", np.uint64)])
    pairs["node"] = trace.node[has_partial]
    pairs["id"] = trace.partial_ids[has_partial]
    _, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    # Numbered in order of first appearance, as all blocks are.
    order = np.argsort(first)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    pairs = pairs[first[order]]
    num_nodes, num_blocks = len(tree.parent), len(tree.labels)
    node = trace.node.copy()
    node[has_partial] = num_nodes + number[which]
    labels = np.ones((len(pairs), 2), dtype=np.uint64)
    labels[:, 0] = pairs["id"]
    depth = np.zeros(len(trace.node), dtype=np.int32)
    depth[has_partial] = trace.num_blocks[has_partial]
    return replace(
        trace,
        tree=BlockTree(
            parent=np.concatenate([tree.parent, pairs["node"]]),
            first_block=np.concatenate(
                [tree.first_block, num_blocks + np.arange(len(pairs), dtype=np.int64)]
            ),
            num_blocks=np.concatenate([tree.num_blocks, np.ones(len(pairs), dtype=np.int32)]),
            depth_blocks=np.concatenate([tree.depth_blocks, depth[has_partial][first[order]]]),
            labels=np.concatenate([tree.labels, labels]),
        ),
        node=node,
        num_blocks=(trace.num_blocks + has_partial).astype(np.int32),
        num_prompt_tokens=tokens,
        has_partial_id=np.zeros_like(has_partial),
    )
