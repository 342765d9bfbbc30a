"""vLLM's BlockPool: blocks with reference counts, one free queue, and keys that find blocks.

A block is a number; block 0 is the null block, a placeholder that is never free, never counted
and never evicted. Free blocks stand in one doubly linked queue and keep their keys; a key is
forgotten when its block is handed out from the queue's front. Blocks are not deduplicated: the
same key may name several blocks, and a lookup returns the one that was registered first.

Keys are opaque: digests for verification, dense integers for analysis. Each group has its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from prefixaudit.pool.vllm.rules import FreeOrder

NULL_BLOCK = 0
NOBODY = -1


class BlockPool:
    """`num_blocks` blocks including the null block, so one less can be used."""

    def __init__(
        self,
        num_blocks: int,
        *,
        num_groups: int,
        free_order: FreeOrder,
        window_free_order: FreeOrder | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.num_free_blocks = num_blocks - 1
        self.references = [0] * num_blocks
        self.stored_by = [NOBODY] * num_blocks
        self.evicted: list[tuple[int, Hashable]] = []
        self.num_keys_registered = 0
        self._unhashed_first = free_order == "unhashed-first"
        self._window_unhashed_first = (window_free_order or free_order) == "unhashed-first"
        # The queue is a ring around the null block, which is never in it.
        self._next = [*range(1, num_blocks), 0]
        self._previous = [num_blocks - 1, *range(num_blocks - 1)]
        self._key: list[Hashable | None] = [None] * num_blocks
        self._group = [0] * num_blocks
        self._key_tokens = [0] * num_blocks
        self._more_keys: dict[int, dict[Hashable, None]] = {}
        self._blocks_of_key: list[dict[Hashable, int | dict[int, None]]] = [
            {} for _ in range(num_groups)
        ]

    # Keys

    def find(self, key: Hashable, group: int) -> int | None:
        """Return the block that was first registered under a key of a group, or None."""
        found = self._blocks_of_key[group].get(key)
        if found is None or isinstance(found, int):
            return found
        return next(iter(found))

    def find_in_all(self, key: Hashable, groups: Sequence[int]) -> list[int] | None:
        """Return one block a group under the same key, or None if one of the groups lacks it."""
        blocks = []
        for group in groups:
            block = self.find(key, group)
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def key_of(self, block: int) -> Hashable | None:
        return self._key[block]

    def group_of(self, block: int) -> int:
        """Return the group that a block's keys belong to; it says nothing without a key."""
        return self._group[block]

    def register(
        self, block: int, key: Hashable, *, group: int, num_tokens: int, owner: int
    ) -> bool:
        """Let `key` find `block`; it covers `num_tokens` tokens. Return whether that is new."""
        if self._key[block] == key and self._group[block] == group:
            return False
        holders = self._blocks_of_key[group]
        found = holders.get(key)
        if found == block or (isinstance(found, dict) and block in found):
            return False
        if self._key[block] is None:
            self._key[block] = key
            self._group[block] = group
            self._key_tokens[block] = num_tokens
        else:
            self._more_keys.setdefault(block, {})[key] = None
        if found is None:
            holders[key] = block
        elif isinstance(found, int):
            holders[key] = {found: None, block: None}
        else:
            found[block] = None
        self.stored_by[block] = owner
        self.num_keys_registered += 1
        return True

    def register_tail(
        self, block: int, key: Hashable, *, group: int, num_tokens: int, owner: int
    ) -> None:
        """Let `key` find a block at an end inside it; keys of shorter ends in it are dropped."""
        if block == NULL_BLOCK:
            return
        found = self._blocks_of_key[group].get(key)
        is_known = found == block or (isinstance(found, dict) and block in found)
        if not is_known and self._key[block] is not None and self._key_tokens[block] < num_tokens:
            self.forget(block)
        self.register(block, key, group=group, num_tokens=num_tokens, owner=owner)

    def forget(self, block: int) -> None:
        """Drop all keys of a block; they count as evicted."""
        group = self._group[block]
        self.evicted.extend((group, key) for key in self._take_keys(block))

    def move_keys(self, source: int, target: int) -> None:
        """Let the keys of `source` find `target` instead, which has none."""
        group, num_tokens = self._group[source], self._key_tokens[source]
        owner, num_registered = self.stored_by[source], self.num_keys_registered
        for key in self._take_keys(source):
            self.register(target, key, group=group, num_tokens=num_tokens, owner=owner)
        self.num_keys_registered = num_registered

    def _take_keys(self, block: int) -> list[Hashable]:
        first = self._key[block]
        if first is None:
            return []
        keys = [first, *self._more_keys.pop(block, ())]
        holders = self._blocks_of_key[self._group[block]]
        for key in keys:
            found = holders[key]
            if isinstance(found, int) or len(found) == 1:
                del holders[key]
            else:
                del found[block]
        self._key[block] = None
        self._key_tokens[block] = 0
        self.stored_by[block] = NOBODY
        return keys

    # Blocks

    def allocate(self, num_blocks: int) -> list[int]:
        """Take blocks from the front of the free queue; what they held is evicted."""
        assert num_blocks <= self.num_free_blocks
        taken = []
        for _ in range(num_blocks):
            block = self._next[NULL_BLOCK]
            self._unlink(block)
            if self._key[block] is not None:
                self.forget(block)
            self.references[block] = 1
            taken.append(block)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block; one that was free leaves the queue."""
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if self.references[block] == 0:
                self._unlink(block)
            self.references[block] += 1

    def free(self, blocks: Iterable[int], *, of_window: bool = False) -> None:
        """Take a reference from each block; in the given order, the unused ones are evicted.

        `of_window`: the release's order for the blocks of a window holds (0.23 has one of its own).
        """
        unhashed_first = self._window_unhashed_first if of_window else self._unhashed_first
        first: list[int] = []
        last: list[int] = []
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            assert self.references[block] > 0
            self.references[block] -= 1
            if self.references[block] == 0:
                unhashed = unhashed_first and self._key[block] is None
                (first if unhashed else last).append(block)
        for block in reversed(first):
            self._link_after(NULL_BLOCK, block)
        for block in last:
            self._link_after(self._previous[NULL_BLOCK], block)

    def reset(self) -> bool:
        """Forget all keys if no block is in use; return whether that was done.

        The order of the free queue stays as it is.
        """
        if self.num_free_blocks != self.num_blocks - 1:
            return False
        for holders in self._blocks_of_key:
            holders.clear()
        self._more_keys.clear()
        self._key = [None] * self.num_blocks
        self._key_tokens = [0] * self.num_blocks
        self.stored_by = [NOBODY] * self.num_blocks
        return True

    def free_blocks(self) -> list[int]:
        """Return the free blocks, the next to be handed out first."""
        blocks, block = [], self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            blocks.append(block)
            block = self._next[block]
        return blocks

    def take_evicted(self) -> list[tuple[int, Hashable]]:
        """Return (group, key) of what was evicted since the last call, in order."""
        evicted, self.evicted = self.evicted, []
        return evicted

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self.num_free_blocks -= 1

    def _link_after(self, before: int, block: int) -> None:
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block] = before
        self._next[block] = after
        self.num_free_blocks += 1
