"""Finds a hit that all KV groups agree on, and does to every group what is done to a request.

Follows KVCacheCoordinator of vLLM 0.22 to 0.33: full attention gives a bound, the other kinds
shrink it, and that is repeated until no kind shrinks it any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from prefixaudit.pool.vllm.block_pool import BlockPool
from prefixaudit.pool.vllm.groups import GROUP_KINDS
from prefixaudit.pool.vllm.groups._group import Group, blocks_for
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What a lookup found: blocks of each group (null where the window doesn't reach).

    num_missed_tokens  how much longer the longest hit of a single kind was
    """

    blocks: tuple[list[int], ...]
    num_tokens: int
    num_missed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Kind:
    """Groups with equal rules: they are looked up together, block by block in all of them."""

    first: Group
    numbers: tuple[int, ...]
    drops: bool


class Coordinator:
    def __init__(self, rules: PoolRules, pool: BlockPool) -> None:
        self.rules = rules
        self.pool = pool
        self.groups: tuple[Group, ...] = tuple(
            GROUP_KINDS[group.kind](group, number, pool, rules)
            for number, group in enumerate(rules.groups)
        )
        self._kinds = self._split_into_kinds()
        self.hits_end_inside_blocks = self._may_hit_inside_blocks()
        if len(self.groups) > 1:
            self._prepare_several()
        else:
            self.groups[0].drops_last_block = bool(rules.dropping_groups)

    def _split_into_kinds(self) -> tuple[_Kind, ...]:
        of_rules: dict[tuple[str, int, int | None], list[int]] = {}
        for number, group in enumerate(self.rules.groups):
            same = (group.kind, group.block_size, group.window_tokens)
            of_rules.setdefault(same, []).append(number)
        dropping = self.rules.dropping_groups
        kinds = [
            _Kind(self.groups[numbers[0]], tuple(numbers), not dropping.isdisjoint(numbers))
            for numbers in of_rules.values()
        ]
        # Full attention first: its scan from the left gives the tightest bound.
        return tuple(sorted(kinds, key=lambda kind: not kind.first.is_full_attention))

    def _may_hit_inside_blocks(self) -> bool:
        """Say whether a hit may end inside a block, at the end of a hash unit (from 0.24).

        It takes a recurrent group with blocks larger than the hash unit, and that every group of
        larger blocks can search inside them.
        """
        unit = self.rules.hash_block_size
        if not self.rules.release.registers_tails or len(self.groups) == 1:
            return False
        larger = [group for group in self.groups if group.block_size > unit]
        return any(group.rules.kind == "mamba" for group in larger) and all(
            group.finds_inside_blocks for group in larger
        )

    def _prepare_several(self) -> None:
        unit = (
            self.rules.hash_block_size
            if self.hits_end_inside_blocks
            else self.rules.scheduler_block_size
        )
        for kind in self._kinds:
            for number in kind.numbers:
                self.groups[number].alignment_tokens = unit
                self.groups[number].drops_last_block = kind.drops

    # Lookup

    def find_hit(self, keys: Sequence[Hashable], max_tokens: int, num_keyed_tokens: int) -> Hit:
        """Return the longest hit of at most `max_tokens` tokens that all groups hold.

        `num_keyed_tokens` of the request's tokens lie in blocks that have a key.
        """
        max_tokens = min(max_tokens, num_keyed_tokens)
        if len(self.groups) == 1:
            group = self.groups[0]
            blocks, num_tokens = group.find_hit(
                keys, max_tokens, (0,), drop_last=group.drops_last_block
            )
            return Hit(blocks=tuple(blocks), num_tokens=num_tokens)
        reads_all = self.rules.release.eagle.reads_whole_prompt
        return self._find_common_hit(
            keys, max_tokens, num_keyed_tokens if reads_all else max_tokens
        )

    def _find_common_hit(self, keys: Sequence[Hashable], max_tokens: int, limit: int) -> Hit:
        blocks: list[list[int]] = [[] for _ in self.groups]
        full_tokens: dict[int, int] = {}
        longest = 0
        bound = max_tokens
        dropped: set[int] = set()
        one_round = len(self._kinds) == 2 and self._kinds[0].first.is_full_attention
        while True:
            current = bound
            for place, kind in enumerate(self._kinds):
                if place in full_tokens:
                    # A prefix of a full attention hit is one too; it's cut to length below.
                    current = min(current, full_tokens[place])
                    continue
                drop = kind.drops and place not in dropped
                found, num_tokens = kind.first.find_hit(
                    keys, self._reach(kind, current, limit, drop), kind.numbers, drop_last=drop
                )
                if drop:
                    dropped.add(place)
                elif num_tokens < current:
                    dropped.clear()
                current = num_tokens
                for number, hit in zip(kind.numbers, found, strict=True):
                    blocks[number] = hit
                if kind.first.is_full_attention:
                    full_tokens[place] = num_tokens
                longest = max(longest, current)
            if current >= bound:
                break
            bound = current
            if one_round:
                break
        cut_kinds = self._kinds if self.rules.release.cuts_every_full_kind else self._kinds[:1]
        for kind in cut_kinds:
            if kind.first.is_full_attention:
                for number in kind.numbers:
                    del blocks[number][blocks_for(bound, kind.first.block_size) :]
        return Hit(blocks=tuple(blocks), num_tokens=bound, num_missed_tokens=longest - bound)

    def _reach(self, kind: _Kind, current: int, limit: int, drop: bool) -> int:
        """Return how far to look: one unit past the bound where the last one is dropped."""
        if not drop or kind.first.rules.kind == "mamba":
            return current
        inside = self.hits_end_inside_blocks and kind.first.finds_inside_blocks
        margin = self.rules.hash_block_size if inside else kind.first.block_size
        return min(current + margin, limit)

    # Requests

    def num_blocks_needed(
        self,
        request: PoolRequest,
        num_tokens: int,
        hit: Hit | None,
        num_computed_tokens: int,
        caps_blocks: Sequence[int | None] | None = None,
    ) -> int:
        """Return how many free blocks all groups together take for `num_tokens` tokens."""
        return sum(
            group.num_blocks_needed(
                request,
                num_tokens,
                hit.blocks[number] if hit else (),
                num_computed_tokens,
                caps_blocks[number] if caps_blocks else None,
            )
            for number, group in enumerate(self.groups)
        )

    def adopt_hit(self, request: PoolRequest, hit: Hit, num_computed_tokens: int) -> None:
        for group, blocks in zip(self.groups, hit.blocks, strict=True):
            group.adopt_hit(request, blocks, num_computed_tokens)

    def extend(self, request: PoolRequest, num_tokens: int) -> None:
        for group in self.groups:
            group.extend(request, num_tokens)

    def register(self, request: PoolRequest, num_tokens: int) -> None:
        """Give keys to what a later hit can use of the first `num_tokens` tokens."""
        several = len(self.groups) > 1
        end = num_tokens
        if several and not self.hits_end_inside_blocks:
            end -= end % self.rules.scheduler_block_size
        for group in self.groups:
            if several and group.keeps_dropped_block and end > 0:
                # The block after an aligned end is matched and dropped, so it needs a key too.
                group.register(request, min(num_tokens, end + group.block_size))
            else:
                group.register(request, end)

    def release_skipped(self, request: PoolRequest, num_computed_tokens: int) -> None:
        for group in self.groups:
            group.release_skipped(request, num_computed_tokens)

    def release(self, request: PoolRequest) -> None:
        for group in self.groups:
            group.release(request)

    def new_step(self) -> None:
        for group in self.groups:
            group.new_step()
