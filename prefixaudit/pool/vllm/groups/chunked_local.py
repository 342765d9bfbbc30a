"""Chunked local attention: tokens attend within their chunk, so what lies before counts as hit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixaudit.pool.vllm.block_pool import NULL_BLOCK
from prefixaudit.pool.vllm.groups._group import Group, blocks_for


class ChunkedLocalAttention(Group):
    @property
    def chunk_tokens(self) -> int:
        assert self.rules.window_tokens is not None
        return self.rules.window_tokens

    def find_hit(
        self, keys: Sequence[Hashable], max_tokens: int, groups: Sequence[int], *, drop_last: bool
    ) -> tuple[list[list[int]], int]:
        first = max_tokens // self.chunk_tokens * self.chunk_tokens // self.block_size
        hits: list[list[int]] = [[NULL_BLOCK] * first for _ in groups]
        for place in range(first, max_tokens // self.block_size):
            found = self.pool.find_in_all(self.block_key(keys, place), groups)
            if found is None:
                break
            for hit, block in zip(hits, found, strict=True):
                hit.append(block)
        return hits, len(hits[0]) * self.block_size

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens // self.chunk_tokens * self.chunk_tokens

    def admission_cap_blocks(self, max_in_flight_tokens: int, max_model_tokens: int) -> int | None:
        held = min(self.chunk_tokens + max_in_flight_tokens, max_model_tokens)
        return blocks_for(held, self.block_size)


GROUP = ChunkedLocalAttention
