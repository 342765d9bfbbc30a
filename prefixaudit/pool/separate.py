"""Traces relabelled by a key: requests share a block only where the key of that block is equal.

A key holds some fields with every block, some with the first one only, and the complete key none
of who asks inside a public prefix. So a request's namespace can change on the way down its prompt,
from coarse to fine; a block is (place in the tree, namespace of its class).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.trace import ROOT, BlockTrace, BlockTree, Int32Array, Int64Array
from prefixaudit.pool import lru_kernels, separate_kernels

# Below this many requests and nodes, plain Python is done before the compiled code is loaded.
_FEW_STEPS = 5_000


def numbered(*columns: NDArray[Any]) -> Int64Array:
    """Number rows (int64, from 0): equal numbers are equal values in all columns."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, codes = np.unique(column, return_inverse=True)
        pairs = numbers * (int(codes.max(initial=0)) + 1) + codes
        _, numbers = np.unique(pairs, return_inverse=True)
    return numbers.astype(np.int64)


def split_nodes(trace: BlockTrace, node: Int64Array, offset_blocks: Int64Array) -> BlockTrace:
    """Return the trace with nodes cut in two: `offset_blocks` of `node` stay in the upper part.

    Offsets of 0 or of the whole node cut nothing; a node can be cut at several places.
    """
    tree = trace.tree
    inside = (offset_blocks > 0) & (offset_blocks < tree.num_blocks[node])
    cuts = np.unique(np.stack([node[inside], offset_blocks[inside]], axis=1), axis=0)
    if not len(cuts):
        return trace
    cut_node, cut_offset = cuts[:, 0], cuts[:, 1]
    num_pieces = 1 + np.bincount(cut_node, minlength=len(tree.parent))
    last = np.cumsum(num_pieces) - 1
    first = last - num_pieces + 1
    origin = np.repeat(np.arange(len(tree.parent)), num_pieces)
    start = np.zeros(len(origin), dtype=np.int64)
    # Cuts come sorted by node and offset, so the pieces after the first take them in turn.
    start[np.setdiff1d(np.arange(len(origin)), first)] = cut_offset
    end = np.append(start[1:], 0)
    end[last] = tree.num_blocks
    parent = np.arange(len(origin), dtype=np.int64) - 1
    parent[first] = np.where(tree.parent < 0, ROOT, last[tree.parent])
    split = BlockTree(
        parent=parent.astype(np.int32),
        first_block=tree.first_block[origin] + start,
        num_blocks=(end - start).astype(np.int32),
        depth_blocks=(tree.depth_blocks[origin] + start).astype(np.int32),
        labels=tree.labels,
    )
    ends = np.where(trace.node < 0, ROOT, last[trace.node]).astype(np.int32)
    return replace(trace, tree=split, node=ends)


def cut_first_blocks(trace: BlockTrace) -> BlockTrace:
    """Return the trace with each prompt's first block as a node of its own."""
    starts = np.flatnonzero(trace.tree.depth_blocks == 0)
    return split_nodes(trace, starts, np.ones(len(starts), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class OwnNodes:
    """A tree in which a node has blocks of one namespace only, for a replay (all int64).

    ends    [requests]  each request's end node, -1 without a full block
    parent, num_blocks, depth_blocks  [nodes], as in BlockTree but for the order of the nodes
    """

    ends: Int64Array
    parent: Int64Array
    num_blocks: Int64Array
    depth_blocks: Int64Array


def own_nodes(
    trace: BlockTrace, namespaces: Int32Array, levels: Int64Array, *, compiled: bool
) -> OwnNodes:
    """Give each namespace (int [requests], from 0) nodes of its own.

    `levels` (int64 [nodes]) is the number of nodes on the way to each node, itself included.
    """
    tree = trace.tree
    ends: NDArray[Any] = trace.node
    parent: NDArray[Any] = tree.parent
    size, depth = tree.num_blocks, tree.depth_blocks
    if trace.num_requests and (namespaces != namespaces[0]).any():
        separate = separate_kernels.separate_by_class
        ends, parent, origin = (separate if compiled else separate.py_func)(
            np.argsort(namespaces, kind="stable"),
            namespaces[np.newaxis].astype(np.int64),
            np.zeros(len(parent), dtype=np.int64),
            ends,
            parent,
            levels,
        )
        size, depth = size[origin], depth[origin]
    return OwnNodes(*(column.astype(np.int64) for column in (ends, parent, size, depth)))


def separated(
    trace: BlockTrace, node_class: NDArray[Any], namespaces: Sequence[Int64Array]
) -> tuple[BlockTrace, Int64Array]:
    """Return the trace in which only requests of one namespace share nodes, and each node's origin.

    node_class  [nodes]  0, 1, …; never below the parent's
    namespaces  for each class int64 [requests] from 0, each refining the one before

    Blocks of the new tree have no labels: equal chains of different namespaces are different.
    """
    tree = trace.tree
    few = len(tree.parent) + trace.num_requests < _FEW_STEPS
    table = np.stack([np.asarray(column, dtype=np.int64) for column in namespaces])
    if not len(tree.parent) or (table == table[:, :1]).all():
        return trace, np.arange(len(tree.parent), dtype=np.int64)
    order = np.lexsort(table[::-1])
    levels = lru_kernels.levels.py_func if few else lru_kernels.levels
    separate = separate_kernels.separate_by_class
    ends, parent, origin = (separate.py_func if few else separate)(
        order.astype(np.int64),
        table,
        np.asarray(node_class, dtype=np.int64),
        trace.node,
        tree.parent,
        levels(tree.parent),
    )
    # Parents before children, as in every tree: an own node's origin lies behind its parent's.
    by_origin = np.argsort(origin, kind="stable")
    number = np.empty(len(origin), dtype=np.int64)
    number[by_origin] = np.arange(len(origin))
    before = parent[by_origin]
    origin = origin[by_origin]
    sizes = tree.num_blocks[origin].astype(np.int64)
    own = BlockTree(
        parent=np.where(before < 0, ROOT, number[before]).astype(np.int32),
        first_block=np.cumsum(sizes) - sizes,
        num_blocks=tree.num_blocks[origin],
        depth_blocks=tree.depth_blocks[origin],
        labels=np.broadcast_to(np.zeros((1, 2), dtype=np.uint64), (int(sizes.sum()), 2)),
    )
    node = np.where(ends < 0, ROOT, number[ends]).astype(np.int32)
    return replace(trace, tree=own, node=node), origin
