"""Computes a prompt alone in its pool, chunk by chunk, as the scheduler would with nobody else."""

from __future__ import annotations

from prefixaudit.pool.vllm.coordinator import Hit
from prefixaudit.pool.vllm.mamba_chunks import MambaChunks
from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest


class PromptRunner:
    """Chunks are at most `longest_chunk_tokens` long and cut where recurrent states are kept.

    num_copies  blocks that were copied on a write so far
    """

    def __init__(self, manager: PoolManager, longest_chunk_tokens: int) -> None:
        self.num_copies = 0
        self._manager = manager
        self._longest_chunk_tokens = longest_chunk_tokens
        self._chunks = MambaChunks.of(manager.rules, longest_chunk_tokens)

    def run(self, request: PoolRequest, hit: Hit) -> bool:
        """Compute a prompt from its hit on; False, and nothing held, if it can't fit.

        Call it right after the lookup, in the same step.
        """
        if not self._compute_chunk(request, hit.num_tokens, hit):
            return False
        while request.num_computed_tokens < request.num_tokens:
            self._manager.new_step()
            if not self._compute_chunk(request, request.num_computed_tokens, None):
                self._manager.free(request)
                return False
        return True

    def extend(self, request: PoolRequest, num_tokens: int) -> bool:
        """Compute the next tokens of an answer in one step; False, and no change, without room."""
        request.num_tokens += num_tokens
        self._manager.new_step()
        if not self._allocate(request, num_tokens, None):
            request.num_tokens -= num_tokens
            return False
        request.num_computed_tokens += num_tokens
        return True

    def _compute_chunk(self, request: PoolRequest, start: int, hit: Hit | None) -> bool:
        num_tokens = min(request.num_tokens - start, self._longest_chunk_tokens)
        if self._chunks is not None:
            num_tokens = self._chunks.cut(request, start, num_tokens)
        # Without a chunk that ends at a block, the engine would wait for a larger budget for ever.
        if num_tokens < 1 or not self._allocate(request, num_tokens, hit):
            return False
        request.num_computed_tokens = start + num_tokens
        return True

    def _allocate(self, request: PoolRequest, num_tokens: int, hit: Hit | None) -> bool:
        has_room = self._manager.allocate(
            request, num_tokens, hit=hit, whole_must_fit=hit is not None
        )
        self.num_copies += len(self._manager.finish_copies())
        return has_room
