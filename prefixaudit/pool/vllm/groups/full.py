"""Full attention: a hit is the longest run of cached blocks from the prompt's start."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixaudit.pool.vllm.groups._group import Group, blocks_for
from prefixaudit.pool.vllm.request import PoolRequest


class FullAttention(Group):
    finds_inside_blocks = True
    is_full_attention = True

    def find_hit(
        self, keys: Sequence[Hashable], max_tokens: int, groups: Sequence[int], *, drop_last: bool
    ) -> tuple[list[list[int]], int]:
        size, unit = self.block_size, self.alignment_tokens
        hits: list[list[int]] = [[] for _ in groups]
        num_tokens = 0
        for place in range(max_tokens // size):
            found = self.pool.find_in_all(self.block_key(keys, place), groups)
            if found is None:
                break
            for hit, block in zip(hits, found, strict=True):
                hit.append(block)
            num_tokens += size
        if unit < size:
            num_tokens = self._extend_inside(keys, max_tokens, groups, hits, num_tokens)
        if drop_last and num_tokens > 0:
            num_tokens -= min(unit, size)
        num_tokens -= num_tokens % unit
        for hit in hits:
            del hit[blocks_for(num_tokens, size) :]
        return hits, num_tokens

    def _extend_inside(
        self,
        keys: Sequence[Hashable],
        max_tokens: int,
        groups: Sequence[int],
        hits: list[list[int]],
        num_tokens: int,
    ) -> int:
        """Add the block whose prefix is known at an end inside it; return the hit's tokens."""
        unit = self.alignment_tokens
        first = num_tokens // unit
        end = min(first + self.block_size // unit - 1, max_tokens // unit, len(keys))
        for place in range(end - 1, first - 1, -1):
            found = self.pool.find_in_all(keys[place], groups)
            if found is not None:
                for hit, block in zip(hits, found, strict=True):
                    hit.append(block)
                return (place + 1) * unit
        return num_tokens

    def register(self, request: PoolRequest, num_tokens: int) -> None:
        super().register(request, num_tokens)
        unit = self.context.hash_block_size
        if self.block_size == unit or not self.context.release.registers_tails:
            return
        # The end of the prompt's last hash unit gets a key of its own where it lies inside a block.
        end = self.tail_end(request)
        table = self.tables[request.number]
        place = end // self.block_size
        if end > num_tokens or end % self.block_size == 0 or place >= len(table):
            return
        self.pool.register_tail(
            table[place],
            request.keys[end // unit - 1],
            group=self.number,
            num_tokens=end,
            owner=request.number,
        )


GROUP = FullAttention
