"""Where prefill chunks are cut so that recurrent (Mamba "align") states can be kept.

A state exists only where a chunk ended, and is kept only at the end of a block. So a chunk that
isn't a prompt's last ends at a block, one chunk ends at the prompt's last full block, and one ends
where other requests share the prefix. Follows `_mamba_block_aligned_split` of vLLM's scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import MambaSplit, PoolRules


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaChunks:
    block_size: int
    hash_block_size: int
    longest_chunk_tokens: int
    split: MambaSplit
    stops_at_tails: bool
    excludes_last_token: bool
    drops_last_block: bool

    @classmethod
    def of(cls, rules: PoolRules, longest_chunk_tokens: int) -> MambaChunks | None:
        """Return the cutter of a pool, None without recurrent groups."""
        sizes = [group.block_size for group in rules.groups if group.kind == "mamba"]
        if not sizes:
            return None
        finer = rules.hash_block_size < max(sizes)
        return cls(
            block_size=rules.scheduler_block_size,
            hash_block_size=rules.hash_block_size,
            longest_chunk_tokens=longest_chunk_tokens,
            split=rules.release.mamba_split,
            stops_at_tails=finer and rules.release.registers_tails,
            excludes_last_token=rules.release.tail_excludes_last_token,
            drops_last_block=bool(rules.dropping_groups),
        )

    def cut(
        self, request: PoolRequest, start: int, num_tokens: int, *, is_admission: bool = False
    ) -> int:
        """Return how many of `num_tokens` tokens from `start` to compute now, perhaps 0.

        `is_admission`: `start` is the hit of a request that is being admitted.
        """
        # A preempted request replays its answer as well; plain decoding is never cut.
        prefill_end = max(request.num_prompt_tokens, request.num_tokens - 1)
        if start >= prefill_end:
            return num_tokens
        reachable = request.num_tokens - self._num_excluded
        last = reachable - reachable % self.block_size
        if self.drops_last_block:
            last = max(last - self.block_size, 0)
        if self.split in ("stops-up-to-last", "stops"):
            return self._cut_at_stops(request, start, num_tokens, last, prefill_end)
        num_tokens = self._cut_at_last(start, num_tokens, last)
        if is_admission and self.split == "last-block-or-shared":
            shared = request.shared_prefix_tokens - start
            if self.block_size <= shared < num_tokens:
                return shared - shared % self.block_size
        return num_tokens

    @property
    def _num_excluded(self) -> int:
        """Return how many tokens at a prompt's end can't be hit; a dropped block leaves enough."""
        return int(self.excludes_last_token and not self.drops_last_block)

    def _cut_at_last(self, start: int, num_tokens: int, last: int) -> int:
        if start + num_tokens < last:
            return num_tokens - num_tokens % self.block_size
        return last - start if start < last else num_tokens

    def _cut_at_stops(
        self, request: PoolRequest, start: int, num_tokens: int, last: int, prefill_end: int
    ) -> int:
        size = self.block_size
        end = start + num_tokens
        next_end = (start // size + 1) * size
        realigns = start % size != 0
        if self.split == "stops-up-to-last":
            realigns = realigns and next_end <= last
            if end < last:
                end -= end % size
        elif end < prefill_end:
            aligned = end - end % size
            # A block wider than any chunk is computed in parts.
            if aligned > start or size <= self.longest_chunk_tokens:
                end = aligned
        stops = [last]
        if realigns:
            stops.append(next_end)
        if self.stops_at_tails:
            unit = self.hash_block_size
            tail = (request.num_prompt_tokens - self._num_excluded) // unit * unit
            if self.drops_last_block:
                tail -= unit
            if last < tail < request.num_prompt_tokens:
                stops.append(tail)
        shared = request.shared_prefix_tokens
        if start < shared < end:
            stops.append(start + (shared - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(end - start, 0)
