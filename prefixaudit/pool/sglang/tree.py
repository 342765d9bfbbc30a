"""SGLang's radix tree over blocks (pages), operation by operation.

Mirrors the behaviour of `RadixCache` (SGLang 0.4.10 to 0.5.23): what is touched when, what a split
does to times and counts, and which leaf an eviction takes. Blocks are integers that are equal where
the tokens of the page are; the caller gives them. Sizes are in blocks.

A node that is evicted whole may free more than was asked for. Times are ticks of a counter.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from prefixaudit.core.trace import Int32Array, Int64Array
from prefixaudit.pool.eviction import EvictionPolicy, Rank

_NO_BLOCKS: Int64Array = np.empty(0, dtype=np.int64)
_NO_DONORS: Int32Array = np.empty(0, dtype=np.int32)


class Node:
    """A run of blocks that was stored or split off as a whole; its facts: `eviction.Leaf`."""

    __slots__ = (
        "blocks",
        "children",
        "created",
        "donors",
        "last_access",
        "num_hits",
        "num_locks",
        "parent",
        "priority",
    )

    def __init__(
        self,
        *,
        parent: Node | None,
        blocks: Int64Array,
        donors: Int32Array,
        now: int,
        priority: int = 0,
    ) -> None:
        self.parent = parent
        self.blocks = blocks
        self.donors = donors
        self.children: dict[int, Node] = {}
        self.num_locks = 0
        self.last_access = now
        self.created = now
        self.num_hits = 0
        self.priority = priority

    @property
    def is_unlocked_leaf(self) -> bool:
        return self.parent is not None and not self.children and self.num_locks == 0

    def path(self) -> Iterator[Node]:
        """Yield this node and its ancestors, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class RadixTree:
    """One root a namespace; all namespaces share the eviction order."""

    def __init__(self, *, policy: EvictionPolicy) -> None:
        self._rank = policy.rank
        self._roots: dict[int, Node] = {}
        self._clock = 0
        self._num_pushed = 0
        # Lazy heap: an entry holds as long as its node is an unlocked leaf of that very rank.
        self._heap: list[tuple[Rank, int, Node]] = []
        self._num_unlocked_leaves = 0
        self.num_unlocked_blocks = 0
        self.num_blocks = 0

    def root(self, namespace: int) -> Node:
        """Return the root of a namespace; it holds nothing and is never evicted."""
        node = self._roots.get(namespace)
        if node is None:
            node = Node(parent=None, blocks=_NO_BLOCKS, donors=_NO_DONORS, now=self._tick())
            self._roots[namespace] = node
        return node

    def match(self, namespace: int, blocks: Int64Array) -> tuple[Node, int]:
        """Return the end of the longest stored prefix of `blocks` and its number of blocks.

        Touches the path; a match that ends inside a node splits it, and the part behind the split
        has been touched before (SGLang writes the time before it compares).
        """
        node = self.root(namespace)
        now = self._tick()
        place = 0
        while place < len(blocks):
            child = node.children.get(int(blocks[place]))
            if child is None:
                break
            self._touch(child, now)
            shared = _common_length(child.blocks, blocks[place:])
            place += shared
            if shared < len(child.blocks):
                return self._split(child, shared), place
            node = child
        return node, place

    def insert(
        self,
        namespace: int,
        blocks: Int64Array,
        *,
        donor: int,
        priority: int = 0,
        counted_from: int = 0,
    ) -> int:
        """Store `blocks` and return how many of them had been stored before.

        Blocks that are new belong to `donor`. Nodes that end behind the first `counted_from` blocks
        count a hit.
        """
        node = self.root(namespace)
        now = self._tick()
        place = 0
        while place < len(blocks):
            child = node.children.get(int(blocks[place]))
            if child is None:
                break
            self._touch(child, now)
            shared = _common_length(child.blocks, blocks[place:])
            place += shared
            node = child if shared == len(child.blocks) else self._split(child, shared)
            node.priority = max(node.priority, priority)
            node.num_hits += place > counted_from
            self._push_if_evictable(node)
        if place < len(blocks):
            num_hits = int(len(blocks) > counted_from)
            self._append(node, blocks[place:], donor=donor, priority=priority, num_hits=num_hits)
        return place

    def lock(self, node: Node) -> None:
        """Keep the node and its ancestors from eviction."""
        for locked in node.path():
            if locked.num_locks == 0:
                self.num_unlocked_blocks -= len(locked.blocks)
                self._num_unlocked_leaves -= not locked.children
            locked.num_locks += 1

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        for locked in node.path():
            locked.num_locks -= 1
            if locked.num_locks == 0:
                self.num_unlocked_blocks += len(locked.blocks)
                self._num_unlocked_leaves += not locked.children
                self._push_if_evictable(locked)

    def evict(self, num_blocks: int) -> int:
        """Drop whole leaves until `num_blocks` are freed or none is left; return what was freed."""
        num_freed = 0
        while num_freed < num_blocks and self._heap:
            rank, _, leaf = heapq.heappop(self._heap)
            parent = leaf.parent
            if parent is None or not leaf.is_unlocked_leaf or self._rank(leaf) != rank:
                continue
            num_freed += len(leaf.blocks)
            del parent.children[int(leaf.blocks[0])]
            leaf.parent = None
            self._num_unlocked_leaves -= 1
            if parent.is_unlocked_leaf:
                self._num_unlocked_leaves += 1
                self._push_if_evictable(parent)
        self.num_unlocked_blocks -= num_freed
        self.num_blocks -= num_freed
        return num_freed

    def donors(self, node: Node) -> Int32Array:
        """Return who stored each block from the root to the end of `node` (int32 [blocks])."""
        parts = [part.donors for part in node.path()]
        return np.concatenate(parts[::-1]) if parts else _NO_DONORS

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _touch(self, node: Node, now: int) -> None:
        node.last_access = now
        self._push_if_evictable(node)

    def _split(self, node: Node, length: int) -> Node:
        """Put the first `length` blocks of a node into a new node before it; return that one."""
        parent = node.parent
        assert parent is not None
        head = Node(
            parent=parent,
            blocks=node.blocks[:length],
            donors=node.donors[:length],
            now=self._tick(),
            priority=node.priority,
        )
        head.num_hits = node.num_hits
        head.num_locks = node.num_locks
        node.blocks = node.blocks[length:]
        node.donors = node.donors[length:]
        node.parent = head
        head.children[int(node.blocks[0])] = node
        parent.children[int(head.blocks[0])] = head
        return head

    def _append(
        self, parent: Node, blocks: Int64Array, *, donor: int, priority: int, num_hits: int
    ) -> None:
        if parent.is_unlocked_leaf:
            self._num_unlocked_leaves -= 1
        leaf = Node(
            parent=parent,
            blocks=blocks,
            donors=np.full(len(blocks), donor, dtype=np.int32),
            now=self._tick(),
            priority=priority,
        )
        leaf.num_hits = num_hits
        parent.children[int(blocks[0])] = leaf
        self._num_unlocked_leaves += 1
        self.num_unlocked_blocks += len(blocks)
        self.num_blocks += len(blocks)
        self._push_if_evictable(leaf)

    def _push_if_evictable(self, node: Node) -> None:
        if not node.is_unlocked_leaf:
            return
        self._num_pushed += 1
        heapq.heappush(self._heap, (self._rank(node), self._num_pushed, node))
        if len(self._heap) > 64 + 2 * self._num_unlocked_leaves:
            self._drop_stale_entries()

    def _drop_stale_entries(self) -> None:
        current: dict[int, tuple[Rank, int, Node]] = {}
        for entry in self._heap:
            if entry[2].is_unlocked_leaf and self._rank(entry[2]) == entry[0]:
                current[id(entry[2])] = entry
        self._heap = list(current.values())
        heapq.heapify(self._heap)


def _common_length(first: Int64Array, second: Int64Array) -> int:
    """Return how many blocks two runs have in common from the front."""
    length = min(len(first), len(second))
    differs = first[:length] != second[:length]
    place = int(differs.argmax()) if length else 0
    return place if length and differs[place] else length
