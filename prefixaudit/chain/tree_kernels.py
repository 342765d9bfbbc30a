"""The loops of the radix tree over a log. Each runs compiled, or as plain Python (`.py_func`).

A node is a run of blocks; its labels stand in `low[first:first + size]` (and `high`, which is
empty while no label needs more than 64 bits). `table` finds a child by (parent, label of its first
block): open addressing, a power of two slots, -1 where free, and the child's number where not, so
that the key itself is read from the child. No function calls another: the plain form of one must
not compile the other.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def insert(  # type: ignore[no-untyped-def]
    batch_low,
    batch_high,
    starts,
    stops,
    ends,
    counts,
    parent,
    first,
    size,
    low,
    high,
    table,
    seed,
):
    """Insert the prompts batch[starts[i]:stops[i]]; their last nodes go to `ends`.

    counts = [nodes, blocks] in use; every array must have room: a node more for each prompt's end
    and one for its parting, a block for each label. On a split the lower half keeps its number,
    so that the ends of earlier prompts stay right.
    """
    wide = len(high) > 0
    mask = len(table) - 1
    num_nodes = counts[0]
    num_blocks = counts[1]
    for prompt in range(len(starts)):
        place = starts[prompt]
        end = stops[prompt]
        node = -1
        while place < end:
            label = batch_low[place]
            mixed = (label ^ seed) * 0x1E3779B97F4A7C15 + np.int64(node) * 0x2545F4914F6CDD1D
            mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
            slot = (mixed ^ (mixed >> 32)) & mask
            child = table[slot]
            while child >= 0 and not (
                parent[child] == node
                and low[first[child]] == label
                and (not wide or high[first[child]] == batch_high[place])
            ):
                slot = (slot + 1) & mask
                child = table[slot]
            if child < 0:
                # Nothing follows this way yet: the rest of the prompt becomes one new run. (Loops,
                # not slices: those take numba a second to compile.)
                child = num_nodes
                num_nodes += 1
                parent[child] = node
                first[child] = num_blocks
                size[child] = end - place
                for block in range(end - place):
                    low[num_blocks + block] = batch_low[place + block]
                if wide:
                    for block in range(end - place):
                        high[num_blocks + block] = batch_high[place + block]
                num_blocks += end - place
                table[slot] = child
                node = child
                break
            begin = first[child]
            most = min(size[child], end - place)
            same = 1
            if wide:
                while (
                    same < most
                    and low[begin + same] == batch_low[place + same]
                    and high[begin + same] == batch_high[place + same]
                ):
                    same += 1
            else:
                while same < most and low[begin + same] == batch_low[place + same]:
                    same += 1
            if same < size[child]:
                upper = num_nodes
                num_nodes += 1
                parent[upper] = node
                first[upper] = begin
                size[upper] = same
                table[slot] = upper
                parent[child] = upper
                first[child] = begin + same
                size[child] -= same
                label = low[begin + same]
                mixed = (label ^ seed) * 0x1E3779B97F4A7C15 + np.int64(upper) * 0x2545F4914F6CDD1D
                mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
                slot = (mixed ^ (mixed >> 32)) & mask
                while table[slot] >= 0:
                    slot = (slot + 1) & mask
                table[slot] = child
                child = upper
            node = child
            place += same
        ends[prompt] = node
    counts[0] = num_nodes
    counts[1] = num_blocks


@njit(cache=True, nogil=True)
def fill_table(num_nodes, parent, first, low, table, seed):  # type: ignore[no-untyped-def]
    """Enter nodes [0, num_nodes) into `table`, which is empty and larger than before."""
    mask = len(table) - 1
    for node in range(num_nodes):
        label = low[first[node]]
        mixed = (label ^ seed) * 0x1E3779B97F4A7C15 + np.int64(parent[node]) * 0x2545F4914F6CDD1D
        mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
        slot = (mixed ^ (mixed >> 32)) & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = node


@njit(cache=True, nogil=True)
def depths(parent, size):  # type: ignore[no-untyped-def]
    """Return the number of blocks before each node (int32); parents come before their children."""
    depth = np.zeros(len(parent), dtype=np.int32)
    for node in range(len(parent)):
        if parent[node] >= 0:
            depth[node] = depth[parent[node]] + size[parent[node]]
    return depth
