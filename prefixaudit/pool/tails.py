"""The blocks that requests take, and a trace in which their tails are blocks like others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prefixaudit.core.trace import BlockTrace, BlockTree, Int64Array


def num_slots(trace: BlockTrace) -> tuple[Int64Array, Int64Array]:
    """Return the blocks that each request takes: for its prompt, and with its answer (int64)."""
    size = trace.block_size
    prompt = -(-trace.num_prompt_tokens // size)
    both = -(-(trace.num_prompt_tokens + trace.num_generated_tokens) // size)
    return prompt, np.maximum(both, trace.num_blocks)


def with_tails(trace: BlockTrace, tails: Int64Array) -> BlockTrace:
    """Return the trace with a node of its own for the tail blocks of each request."""
    tree = trace.tree
    having = np.flatnonzero(tails)
    nodes = len(tree.parent) + np.arange(len(having))
    first = trace.num_distinct_blocks + np.cumsum(tails[having]) - tails[having]
    node = trace.node.copy()
    node[having] = nodes
    return replace(
        trace,
        node=node,
        num_blocks=(trace.num_blocks + tails).astype(np.int32),
        tree=BlockTree(
            parent=np.concatenate([tree.parent, trace.node[having]]),
            first_block=np.concatenate([tree.first_block, first]),
            num_blocks=np.concatenate([tree.num_blocks, tails[having].astype(np.int32)]),
            depth_blocks=np.concatenate([tree.depth_blocks, trace.num_blocks[having]]),
            # No tail is ever compared, so what its labels are doesn't matter.
            labels=np.concatenate([tree.labels, np.zeros((int(tails.sum()), 2), np.uint64)]),
        ),
    )
