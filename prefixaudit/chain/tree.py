"""The radix tree while it grows: arrays with room to spare around the loops of `tree_kernels`."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixaudit.chain import tree_kernels
from prefixaudit.core.trace import ROOT, BlockTree, Int32Array, Int64Array

# Below this many blocks in all, plain Python is done before the compiled code would be loaded.
_FEW_BLOCKS = 500_000


def grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return `array` with room for at least `length` entries; what it holds stays."""
    if length <= len(array):
        return array
    larger = np.empty(max(length, len(array) + len(array) // 2), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class GrowingTree:
    """A compressed radix tree over label sequences; labels are pairs of int64 (low, high)."""

    def __init__(self) -> None:
        self._counts = np.zeros(2, dtype=np.int64)
        self._parent = np.empty(64, dtype=np.int64)
        self._first = np.empty(64, dtype=np.int64)
        self._size = np.empty(64, dtype=np.int64)
        self._low = np.empty(1024, dtype=np.int64)
        self._high = np.empty(0, dtype=np.int64)
        self._table = np.full(256, -1, dtype=np.int64)
        # Hash ids come from outside: nobody may choose ids that all fall into one slot.
        self._seed = np.int64(secrets.randbits(62))
        self._num_seen_blocks = 0

    def insert(
        self, low: Int64Array, high: Int64Array | None, starts: Int64Array, stops: Int64Array
    ) -> Int64Array:
        """Insert prompts low[starts[i]:stops[i]] and return their last nodes (-1: no block).

        `high` is None where all labels of the batch have a high half of 0. The numbers returned
        stay valid until `finish`, which says what became of them.
        """
        self._make_room(num_prompts=len(starts), num_blocks=len(low))
        if high is not None and not len(self._high):
            self._high = np.zeros(len(self._low), dtype=np.int64)
        if high is None:
            high = np.zeros(len(low) if len(self._high) else 0, dtype=np.int64)
        self._num_seen_blocks += len(low)
        kernel = self._chosen(tree_kernels.insert)
        ends = np.empty(len(starts), dtype=np.int64)
        with np.errstate(over="ignore"):
            kernel(
                low,
                high,
                starts,
                stops,
                ends,
                self._counts,
                self._parent,
                self._first,
                self._size,
                self._low,
                self._high,
                self._table,
                self._seed,
            )
        return ends

    def finish(self) -> tuple[BlockTree, Int32Array]:
        """Return the tree, parents before children, and the new number (int32) of each node.

        Nodes are in order of their first block, blocks in order of first appearance.
        """
        num_nodes, num_blocks = (int(count) for count in self._counts)
        order = np.argsort(self._first[:num_nodes], kind="stable")
        number = np.empty(num_nodes, dtype=np.int32)
        number[order] = np.arange(num_nodes, dtype=np.int32)
        before = self._parent[:num_nodes][order]
        parent = np.where(before < 0, np.int32(ROOT), number[before]).astype(np.int32)
        size = self._size[:num_nodes][order].astype(np.int32)
        labels = np.zeros((num_blocks, 2), dtype=np.uint64)
        labels[:, 0] = self._low[:num_blocks].view(np.uint64)
        if len(self._high):
            labels[:, 1] = self._high[:num_blocks].view(np.uint64)
        tree = BlockTree(
            parent=parent,
            first_block=self._first[:num_nodes][order],
            num_blocks=size,
            depth_blocks=self._chosen(tree_kernels.depths)(parent, size),
            labels=labels,
        )
        return tree, number

    def _chosen(self, kernel: Any) -> Any:
        return kernel.py_func if self._num_seen_blocks < _FEW_BLOCKS else kernel

    def _make_room(self, *, num_prompts: int, num_blocks: int) -> None:
        num_nodes = int(self._counts[0])
        most_nodes = num_nodes + 2 * num_prompts
        self._parent = grown(self._parent, most_nodes)
        self._first = grown(self._first, most_nodes)
        self._size = grown(self._size, most_nodes)
        self._low = grown(self._low, int(self._counts[1]) + num_blocks)
        if len(self._high):
            self._high = grown(self._high, len(self._low))
        if 2 * most_nodes > len(self._table):
            length = 1 << (4 * most_nodes - 1).bit_length()
            self._table = np.full(length, -1, dtype=np.int64)
            with np.errstate(over="ignore"):
                self._chosen(tree_kernels.fill_table)(
                    num_nodes, self._parent, self._first, self._low, self._table, self._seed
                )
