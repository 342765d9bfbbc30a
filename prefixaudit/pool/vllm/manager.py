"""The pool's operations on a request: look up, allocate, free, reset (vLLM's KVCacheManager).

A request's blocks get their keys when they are allocated, before they are computed, so that a
later request of the same step can hit them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixaudit.pool.vllm.block_pool import BlockPool
from prefixaudit.pool.vllm.coordinator import Coordinator, Hit
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules


class PoolManager:
    """A pool of `num_blocks` blocks including the null block.

    `max_in_flight_tokens` (a step's token budget) and `max_model_tokens` bound what a request of a
    sliding window or chunked local group holds; without them admission counts its whole prompt.
    `changes_at_block_ends_only`: tokens within a started block change nothing in the pool.
    """

    def __init__(
        self,
        rules: PoolRules,
        num_blocks: int,
        *,
        max_model_tokens: int | None = None,
        max_in_flight_tokens: int | None = None,
    ) -> None:
        self.rules = rules
        self.pool = BlockPool(
            num_blocks,
            num_groups=len(rules.groups),
            free_order=rules.release.free_order,
            window_free_order=rules.release.window_free_order,
        )
        self.coordinator = Coordinator(rules, self.pool)
        # Full attention frees nothing while a request runs, so its events are at block ends only.
        self.changes_at_block_ends_only = all(group.kind == "full" for group in rules.groups)
        self._caps_blocks: list[int | None] = [
            None
            if max_model_tokens is None
            else group.admission_cap_blocks(
                max_model_tokens if max_in_flight_tokens is None else max_in_flight_tokens,
                max_model_tokens,
            )
            for group in self.coordinator.groups
        ]

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free_blocks

    def look_up(self, request: PoolRequest) -> Hit:
        """Return the hit of a request that holds nothing yet, at most all its tokens but one.

        Also notes the shared prefix that a sparse group lacks, so that its tail is kept.
        """
        if not request.reads_cache:
            request.shared_prefix_tokens = 0
            return Hit(blocks=tuple([] for _ in self.coordinator.groups), num_tokens=0)
        unit = self.rules.hash_block_size
        num_keyed_tokens = min(len(request.keys), request.num_tokens // unit) * unit
        hit = self.coordinator.find_hit(request.keys, request.num_tokens - 1, num_keyed_tokens)
        request.shared_prefix_tokens = (
            hit.num_tokens + hit.num_missed_tokens if hit.num_missed_tokens else 0
        )
        return hit

    def allocate(
        self,
        request: PoolRequest,
        num_new_tokens: int,
        *,
        hit: Hit | None = None,
        whole_must_fit: bool = False,
        watermark_blocks: int = 0,
    ) -> bool:
        """Make room for the next `num_new_tokens` tokens (1 or more) after the hit.

        Return whether there was room; if not, nothing but blocks left of a window has changed.
        `request.num_computed_tokens` stays as it was.
        """
        if hit is None and self._stays_in_block(request, num_new_tokens):
            return True
        coordinator = self.coordinator
        computed = request.num_computed_tokens + (hit.num_tokens if hit else 0)
        if whole_must_fit:
            needed = coordinator.num_blocks_needed(
                request, request.num_tokens, hit, computed, self._caps_blocks
            )
            if needed + watermark_blocks > self.pool.num_free_blocks:
                return False
        num_tokens = computed + num_new_tokens
        coordinator.release_skipped(request, computed)
        needed = coordinator.num_blocks_needed(request, num_tokens, hit, computed)
        if needed + watermark_blocks > self.pool.num_free_blocks:
            return False
        if hit is not None:
            coordinator.adopt_hit(request, hit, computed)
        coordinator.extend(request, num_tokens)
        coordinator.register(request, min(num_tokens, request.num_tokens))
        return True

    def _stays_in_block(self, request: PoolRequest, num_new_tokens: int) -> bool:
        """Say whether tokens fill up a started block without completing it: nothing to do then."""
        unit = self.rules.hash_block_size
        computed = request.num_computed_tokens
        return (
            self.changes_at_block_ends_only
            and computed % unit != 0
            and computed // unit == (computed + num_new_tokens) // unit
        )

    def free(self, request: PoolRequest) -> None:
        """Give back all blocks of a request, the last ones first to be evicted."""
        self.coordinator.release(request)

    def reset(self) -> bool:
        """Forget all cached blocks if none is in use; return whether that was done."""
        return self.pool.reset()

    def new_step(self) -> None:
        self.coordinator.new_step()

    def finish_copies(self) -> list[tuple[int, int]]:
        """Release both ends of the copies made on a write; return them as (source, copy)."""
        copies = [copy for group in self.coordinator.groups for copy in group.take_copies()]
        for pair in copies:
            self.pool.free(pair)
        return copies

    def take_evicted(self) -> list[tuple[int, Hashable]]:
        """Return (group, key) of what was evicted since the last call, in order."""
        return self.pool.take_evicted()

    def tables(self, request: PoolRequest) -> Sequence[Sequence[int]]:
        """Return a request's blocks, one list a group; 0 stands for a block it doesn't hold."""
        return [group.tables.get(request.number, []) for group in self.coordinator.groups]
