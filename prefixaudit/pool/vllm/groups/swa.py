"""Sliding window attention: a hit needs the window's blocks only, anywhere in the prompt.

Blocks to the left of the window count as hit without being there, and are freed while the request
runs. A sparse retention gives keys only to the tails that a hit can end on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixaudit.pool.vllm.block_pool import NULL_BLOCK
from prefixaudit.pool.vllm.groups._group import Group, blocks_for
from prefixaudit.pool.vllm.request import PoolRequest


class SlidingWindow(Group):
    frees_as_window = True

    @property
    def window_tokens(self) -> int:
        assert self.rules.window_tokens is not None
        return self.rules.window_tokens

    def _run_for_hit(self, dropped: bool) -> int:
        """Return how many blocks in a row make a hit; one more where the last one is dropped."""
        return blocks_for(self.window_tokens - 1, self.block_size) + dropped

    def find_hit(
        self, keys: Sequence[Hashable], max_tokens: int, groups: Sequence[int], *, drop_last: bool
    ) -> tuple[list[list[int]], int]:
        size, unit = self.block_size, self.alignment_tokens
        run_needed = self._run_for_hit(drop_last)
        found_at: dict[int, list[int]] = {}
        run = 0
        num_blocks = 0
        for place in range(max_tokens // size - 1, -1, -1):
            found = self.pool.find_in_all(self.block_key(keys, place), groups)
            if found is None:
                run = 0
                continue
            if run == 0 and size != unit:
                # A run may only begin where the hit that it gives is aligned.
                end = place if drop_last else place + 1
                if end * size % unit != 0:
                    continue
            found_at[place] = found
            run += 1
            if run >= run_needed:
                num_blocks = place + run
                break
        else:
            # At the prompt's start fewer blocks are enough.
            num_blocks = self._aligned(run)
        if drop_last and num_blocks:
            num_blocks = self._aligned(num_blocks - 1)
        hits = [
            [
                found_at[place][number] if place in found_at else NULL_BLOCK
                for place in range(num_blocks)
            ]
            for number in range(len(groups))
        ]
        return hits, num_blocks * size

    def _aligned(self, num_blocks: int) -> int:
        while num_blocks * self.block_size % self.alignment_tokens != 0 and (
            self.block_size != self.alignment_tokens
        ):
            num_blocks -= 1
        return num_blocks

    def kept_blocks(self, request: PoolRequest, start: int, end: int) -> list[bool] | None:
        size, unit = self.block_size, self.alignment_tokens
        if unit % size != 0:
            return None
        interval = self.context.retention_interval_tokens
        # With the drop, the block after the boundary is matched too.
        shift = int(self.keeps_dropped_block)
        need = self._run_for_hit(self.keeps_dropped_block)
        kept = [False] * (end - start)
        if interval != 0:
            segment = (unit if interval is None else interval) // size
            if need >= segment:
                return None
            for place in range(max(start, shift), end):
                kept[place - start] = (place - shift) % segment >= segment - need
        if interval is not None:
            for position in self.reachable_ends(request):
                last = position // unit * unit // size + shift
                for place in range(max(start, last - need), min(end, last)):
                    kept[place - start] = True
        return kept

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.window_tokens + 1)

    def admission_cap_blocks(self, max_in_flight_tokens: int, max_model_tokens: int) -> int | None:
        held = min(self.window_tokens - 1 + max_in_flight_tokens, max_model_tokens)
        # A window rarely starts at a block's start, so it may touch one block more.
        return blocks_for(held, self.block_size) + 1


GROUP = SlidingWindow
