"""Mamba and other recurrent layers in "align" mode: states at block ends where a chunk ended.

A table has one live block, the running state; the others are null or states that were kept. A hit
is the last kept state at or before the bound. States of the current step don't exist before the
step has run, so a hit on one of them has to wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixaudit.pool.vllm.block_pool import NULL_BLOCK, BlockPool
from prefixaudit.pool.vllm.groups._group import Group, blocks_for
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import GroupRules, PoolRules


class Mamba(Group):
    finds_inside_blocks = True

    def __init__(self, rules: GroupRules, number: int, pool: BlockPool, context: PoolRules) -> None:
        super().__init__(rules, number, pool, context)
        self._keys_of_step: set[Hashable] = set()
        self._allocated: set[int] = set()
        self._last_state: dict[int, int] = {}

    def find_hit(
        self, keys: Sequence[Hashable], max_tokens: int, groups: Sequence[int], *, drop_last: bool
    ) -> tuple[list[list[int]], int]:
        # Drafters have no recurrent layers, so nothing is dropped here.
        size, unit = self.block_size, self.alignment_tokens
        step = min(unit, size)
        for end in range(max_tokens // step * step, 0, -step):
            if unit < size:
                if end // unit > len(keys):
                    continue
                key = keys[end // unit - 1]
            elif end % unit != 0:
                continue
            else:
                key = self.block_key(keys, end // size - 1)
            found = self.pool.find_in_all(key, groups)
            if found is not None:
                before = blocks_for(end, size) - 1
                return [[*[NULL_BLOCK] * before, block] for block in found], end
        return [[] for _ in groups], 0

    def num_blocks_needed(
        self,
        request: PoolRequest,
        num_tokens: int,
        hit: Sequence[int],
        num_computed_tokens: int,
        cap_blocks: int | None = None,
    ) -> int:
        if hit and self.pool.key_of(hit[-1]) in self._keys_of_step:
            # More than there are: the request waits for the next step.
            return self.pool.num_blocks + 1
        table = self.tables.get(request.number, ())
        needed = blocks_for(num_tokens, self.block_size) - len(hit) - len(table)
        copies = int(
            self._hit_ends_inside(hit, num_computed_tokens) or request.number in self._shared_tails
        )
        if copies:
            needed = max(needed, 0) + 1
        if needed > 0:
            reserves = self.context.release.reserves_beside_copy
            needed = 1 + copies if reserves else min(needed, 1 + copies)
        return needed + self.num_free_hits(hit)

    def extend(self, request: PoolRequest, num_tokens: int) -> None:
        number = request.number
        table = self.tables.setdefault(number, [])
        required = blocks_for(num_tokens, self.block_size)
        tail = self._shared_tails.pop(number, None)
        is_running = number in self._allocated
        self._allocated.add(number)
        if required <= len(table) and tail is None:
            return
        if table:
            self._last_state[number] = len(table) - 1
        # Only the state at the end of the chunk exists; the blocks between get none.
        table.extend([NULL_BLOCK] * (required - 1 - len(table)))
        missing = max(required - len(table), 0)
        new = self.pool.allocate(missing + (tail is not None))
        if tail is not None:
            self._copy_tail(request, *tail, new.pop(0), is_running=is_running)
        table.extend(new)

    def _copy_tail(
        self, request: PoolRequest, place: int, source: int, private: int, *, is_running: bool
    ) -> None:
        if not is_running:
            self._copy_shared_tail(request, place, source, private)
            return
        # The request goes on writing into its block, so the cache gets the copy.
        self.pool.move_keys(source, private)
        self.pool.references[source] += 1
        self.copies.append((source, private))
        moved = self.pool.key_of(private)
        if moved is not None:
            self._keys_of_step.add(moved)

    def register(self, request: PoolRequest, num_tokens: int) -> None:
        before = self.num_registered.get(request.number, 0)
        super().register(request, num_tokens)
        after = self.num_registered.get(request.number, 0)
        self._register_tail(request, num_tokens)
        for block in self.tables[request.number][before:after]:
            key = self.pool.key_of(block)
            if block != NULL_BLOCK and key is not None:
                self._keys_of_step.add(key)

    def _register_tail(self, request: PoolRequest, num_tokens: int) -> None:
        """Keep the state at the prompt's last hash unit if the chunk ended there, in a block."""
        unit = self.context.hash_block_size
        if self.block_size == unit or not self.context.release.registers_tails:
            return
        end = self.tail_end(request) - (unit if self.drops_last_block else 0)
        if num_tokens % self.block_size == 0 or num_tokens != end:
            return
        table = self.tables[request.number]
        place = num_tokens // self.block_size
        if place >= len(table) or table[place] == NULL_BLOCK:
            return
        key = request.keys[num_tokens // unit - 1]
        self.pool.register_tail(
            table[place], key, group=self.number, num_tokens=num_tokens, owner=request.number
        )
        self._shared_tails[request.number] = (place, table[place])
        self.num_registered[request.number] = place
        self._keys_of_step.add(key)

    def kept_blocks(self, request: PoolRequest, start: int, end: int) -> list[bool] | None:
        interval = self.context.retention_interval_tokens
        if interval is None:
            return None
        kept = [False] * (end - start)
        if interval != 0:
            segment = interval // self.block_size
            if segment <= 1:
                return None
            for place in range(start, end):
                kept[place - start] = (place + 1) % segment == 0
        unit = self.alignment_tokens
        for position in self.reachable_ends(request):
            place = position // unit * unit // self.block_size - 1
            if start <= place < end:
                kept[place - start] = True
        return kept

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens - 1

    def release_skipped(self, request: PoolRequest, num_computed_tokens: int) -> None:
        super().release_skipped(request, num_computed_tokens)
        # The state that the last chunk began with has been copied on by now.
        last = self._last_state.get(request.number)
        if last is None or last >= blocks_for(num_computed_tokens, self.block_size) - 1:
            return
        table = self.tables[request.number]
        if table[last] != NULL_BLOCK:
            self.pool.free([table[last]])
            table[last] = NULL_BLOCK

    def release(self, request: PoolRequest) -> None:
        self._allocated.discard(request.number)
        self._last_state.pop(request.number, None)
        super().release(request)

    def new_step(self) -> None:
        self._keys_of_step.clear()


GROUP = Mamba
