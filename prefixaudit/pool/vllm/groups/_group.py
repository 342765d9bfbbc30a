"""What all kinds of KV groups share: block tables, allocation, keys, and the release of blocks.

Follows SingleTypeKVCacheManager of vLLM 0.22 to 0.33.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from prefixaudit.pool.vllm.block_pool import NULL_BLOCK, BlockPool
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import GroupRules, PoolRules


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens` tokens, the last one perhaps in part."""
    return -(-num_tokens // block_size)


class Group:
    """The block tables of one KV group. A table's null blocks stand for what isn't needed.

    alignment_tokens  unit in which hits are counted, as the coordinator sets it
    drops_last_block  lookups drop the last matched block (EAGLE)
    frees_as_window   a request's end frees its blocks in the order of those that a window leaves
    copies            blocks that were copied on a write since the last call of `take_copies`
    """

    finds_inside_blocks: ClassVar[bool] = False
    is_full_attention: ClassVar[bool] = False
    frees_as_window: ClassVar[bool] = False

    def __init__(self, rules: GroupRules, number: int, pool: BlockPool, context: PoolRules) -> None:
        self.rules = rules
        self.number = number
        self.pool = pool
        self.context = context
        self.block_size = rules.block_size
        self.alignment_tokens = context.scheduler_block_size
        self.drops_last_block = False
        self._is_drafted = bool(context.dropping_groups)
        self.tables: dict[int, list[int]] = {}
        self.num_registered: dict[int, int] = {}
        self.copies: list[tuple[int, int]] = []
        self._shared_tails: dict[int, tuple[int, int]] = {}

    # Keys

    def block_key(self, keys: Sequence[Hashable], place: int) -> Hashable:
        """Return the key of the block at a place of a table, from the keys of the hash units."""
        units = self.block_size // self.context.hash_block_size
        if units == 1:
            return keys[place]
        if self.context.release.big_block_key == "last":
            return keys[(place + 1) * units - 1]
        return tuple(keys[place * units : (place + 1) * units])

    # Lookup

    def find_hit(
        self, keys: Sequence[Hashable], max_tokens: int, groups: Sequence[int], *, drop_last: bool
    ) -> tuple[list[list[int]], int]:
        """Return the hit blocks, one list a group of `groups` (all of this kind), and its tokens.

        The hit is at most `max_tokens` long (one unit more before a drop) and aligned.
        """
        raise NotImplementedError

    # Allocation

    def admission_cap_blocks(self, max_in_flight_tokens: int, max_model_tokens: int) -> int | None:
        """Return the most blocks one request ever holds where that is bounded, else None."""
        return None

    def num_blocks_needed(
        self,
        request: PoolRequest,
        num_tokens: int,
        hit: Sequence[int],
        num_computed_tokens: int,
        cap_blocks: int | None = None,
    ) -> int:
        """Return how many free blocks a request takes to hold `num_tokens` tokens.

        Hit blocks that stand in the free queue count too. `num_computed_tokens` includes the hit.
        """
        required = blocks_for(num_tokens, self.block_size)
        if cap_blocks is not None:
            required = min(required, cap_blocks)
        table = self.tables.get(request.number, ())
        if request.number in self.num_registered:
            return max(required - len(table), 0)
        skipped = self.num_skipped_tokens(num_computed_tokens) // self.block_size
        needed = max(required - max(skipped, len(hit) + len(table)), 0)
        if self._hit_ends_inside(hit, num_computed_tokens):
            needed += 1
        return needed + self.num_free_hits(hit[max(0, skipped - len(table)) :])

    def num_free_hits(self, hit: Sequence[int]) -> int:
        references = self.pool.references
        return sum(block != NULL_BLOCK and references[block] == 0 for block in hit)

    def adopt_hit(self, request: PoolRequest, hit: Sequence[int], num_computed_tokens: int) -> None:
        """Start a request's table with the blocks it hit; those the window skips become null."""
        skipped = self.num_skipped_tokens(num_computed_tokens) // self.block_size
        if skipped > 0:
            hit = hit[skipped:]
        self.pool.touch(hit)
        table = [NULL_BLOCK] * skipped
        table.extend(hit)
        self.tables[request.number] = table
        self.num_registered[request.number] = len(table)
        if self._hit_ends_inside(hit, num_computed_tokens):
            place = num_computed_tokens // self.block_size
            self._shared_tails[request.number] = (place, hit[-1])
            self.num_registered[request.number] = place

    def extend(self, request: PoolRequest, num_tokens: int) -> None:
        """Allocate blocks until the table holds `num_tokens` tokens."""
        tail = self._shared_tails.pop(request.number, None)
        if tail is not None:
            self._copy_shared_tail(request, *tail, self.pool.allocate(1)[0])
        table = self.tables.setdefault(request.number, [])
        missing = blocks_for(num_tokens, self.block_size) - len(table)
        if missing > 0:
            table.extend(self.pool.allocate(missing))

    def _hit_ends_inside(self, hit: Sequence[int], num_computed_tokens: int) -> bool:
        return len(hit) > 0 and num_computed_tokens % self.block_size != 0

    def _copy_shared_tail(
        self, request: PoolRequest, place: int, source: int, private: int
    ) -> None:
        # Both ends keep a reference until the copy has run.
        self.tables[request.number][place] = private
        self.pool.references[private] += 1
        self.copies.append((source, private))

    # Registration

    def register(self, request: PoolRequest, num_tokens: int) -> None:
        """Give keys to the full blocks of the first `num_tokens` tokens that may serve a hit."""
        start = self.num_registered.get(request.number, 0)
        num_keyed_tokens = len(request.keys) * self.context.hash_block_size
        end = min(num_tokens, num_keyed_tokens) // self.block_size
        if start >= end:
            return
        kept = self.kept_blocks(request, start, end)
        table = self.tables[request.number]
        for place in range(start, end):
            block = table[place]
            if block == NULL_BLOCK or (kept is not None and not kept[place - start]):
                continue
            self._register_full(request, block, place)
        self.num_registered[request.number] = end

    def _register_full(self, request: PoolRequest, block: int, place: int) -> None:
        key = self.block_key(request.keys, place)
        if self.pool.key_of(block) is not None:
            if self.pool.key_of(block) == key:
                return
            # A tail that had a key of its own is full now.
            self.pool.forget(block)
        self.pool.register(
            block,
            key,
            group=self.number,
            num_tokens=(place + 1) * self.block_size,
            owner=request.number,
        )

    def kept_blocks(self, request: PoolRequest, start: int, end: int) -> list[bool] | None:
        """Say for each block of [start, end) whether it gets a key; None: all of them."""
        return None

    @property
    def keeps_dropped_block(self) -> bool:
        """Say whether the block that a lookup drops gets a key for that."""
        return self.drops_last_block and self.context.release.eagle.keeps_dropped_block

    def reachable_ends(self, request: PoolRequest) -> list[int]:
        """Return the token positions whose tails a sparse group must keep.

        A replay of the same prompt looks up at most its tokens but one; a shared prefix that this
        group lacked at the lookup is kept from now on.
        """
        release = self.context.release
        ends = self._replay_ends(request.num_prompt_tokens)
        shared = request.shared_prefix_tokens
        if shared and release.pins_shared_prefixes:
            ends.append(shared)
            if self.drops_last_block and release.eagle.retains_below_shared_prefix:
                # Who leaves the prefix right after it can't match the block to drop.
                ends.append(shared - self.block_size)
        return ends

    def _replay_ends(self, num_prompt_tokens: int) -> list[int]:
        if not (self._is_drafted and self.context.release.eagle.retains_both_ends):
            return [num_prompt_tokens - 1]
        unit = self.context.scheduler_block_size
        # Whatever the group, all of them end one unit below what the drafter's group matches.
        return [
            max(end // unit * unit - unit, 0) for end in (num_prompt_tokens - 1, num_prompt_tokens)
        ]

    def tail_end(self, request: PoolRequest) -> int:
        """Return the token position where the prompt's last whole hash unit ends."""
        unit = self.context.hash_block_size
        last = self.context.release.tail_excludes_last_token and not self.drops_last_block
        return (request.num_prompt_tokens - last) // unit * unit

    # Release

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return how many leading tokens attention won't read again."""
        return 0

    def release_skipped(self, request: PoolRequest, num_computed_tokens: int) -> None:
        """Free the blocks that attention won't read again; later ones first."""
        skipped = self.num_skipped_tokens(num_computed_tokens)
        if skipped <= 0:
            return
        table = self.tables.get(request.number, [])
        released = []
        for place in range(min(skipped // self.block_size, len(table)) - 1, -1, -1):
            if table[place] == NULL_BLOCK:
                # What lies before was released when this one was.
                break
            released.append(table[place])
            table[place] = NULL_BLOCK
        self.pool.free(released, of_window=True)

    def release(self, request: PoolRequest) -> None:
        """Free all blocks of a request, the last one first."""
        table = self.tables.pop(request.number, [])
        self.num_registered.pop(request.number, None)
        self._shared_tails.pop(request.number, None)
        self.pool.free(reversed(table), of_window=self.frees_as_window)

    def new_step(self) -> None:
        """A new step of the scheduler begins."""

    def take_copies(self) -> list[tuple[int, int]]:
        """Return (source, private copy) of the copies since the last call."""
        copies, self.copies = self.copies, []
        return copies
