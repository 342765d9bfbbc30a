"""Reference counts made visible: which blocks are shared, by how many, and what a fork costs.

vLLM shares whole blocks only. It has no copy-on-write of a forked request: n samples of a prompt
are n requests, and each has a private copy of what the others can't be served, which is the block
that holds the last prompt token. From 0.24 a hit may also end inside a block (recurrent groups
with a finer hash unit), and that block is copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from prefixaudit.errors import UsageError
from prefixaudit.pool.vllm.groups._group import blocks_for
from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.prompt_runner import PromptRunner
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOccupancy:
    """Where the blocks of a pool are now; used + free = all that can be used.

    num_blocks_by_readers  blocks in use by the number of running requests that hold them
    num_cached_free_blocks free blocks that still have a key, so that a lookup can hit them
    """

    num_usable_blocks: int
    num_blocks_by_readers: Mapping[int, int]
    num_cached_free_blocks: int
    num_free_blocks: int

    @property
    def num_used_blocks(self) -> int:
        return sum(self.num_blocks_by_readers.values())

    @property
    def num_shared_blocks(self) -> int:
        """Return the blocks that two or more running requests hold."""
        return sum(count for readers, count in self.num_blocks_by_readers.items() if readers > 1)

    @property
    def num_private_blocks(self) -> int:
        return self.num_blocks_by_readers.get(1, 0)

    @property
    def num_blocks_saved(self) -> int:
        """Return how many more blocks the running requests would hold without sharing."""
        return sum((readers - 1) * count for readers, count in self.num_blocks_by_readers.items())


def occupancy(manager: PoolManager) -> PoolOccupancy:
    """Count a pool's blocks by use."""
    pool = manager.pool
    readers = Counter(count for count in pool.references[1:] if count > 0)
    return PoolOccupancy(
        num_usable_blocks=pool.num_blocks - 1,
        num_blocks_by_readers=dict(sorted(readers.items())),
        num_cached_free_blocks=sum(pool.key_of(block) is not None for block in pool.free_blocks()),
        num_free_blocks=pool.num_free_blocks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCost:
    """What n samples of one prompt hold and compute, before any of them has answered.

    num_shared_blocks    blocks that several samples hold
    num_private_blocks   blocks of one sample only, of all samples together
    num_copied_blocks    blocks whose content was copied because a hit ended inside them
    num_recomputed_tokens prompt tokens computed again by the second and later samples
    """

    num_shared_blocks: int
    num_private_blocks: int
    num_copied_blocks: int
    num_recomputed_tokens: int


def fork_cost(rules: PoolRules, num_prompt_tokens: int, num_samples: int) -> ForkCost:
    """Run a prompt `num_samples` times at once in a pool of their own and count what they hold.

    A private copy is each of `num_private_blocks` beyond the first sample's. Raises UsageError for
    an empty prompt or no sample.
    """
    if num_prompt_tokens < 1 or num_samples < 1:
        raise UsageError("a fork needs a prompt of 1 token or more, and 1 sample or more")
    num_blocks = num_samples * sum(
        blocks_for(num_prompt_tokens, group.block_size) + 1 for group in rules.groups
    )
    manager = PoolManager(rules, num_blocks + 1)
    runner = PromptRunner(manager, num_prompt_tokens)
    num_recomputed = 0
    for number in range(num_samples):
        manager.new_step()
        request = PoolRequest(
            number=number,
            keys=range(num_prompt_tokens // rules.hash_block_size),
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=num_prompt_tokens,
        )
        hit = manager.look_up(request)
        has_room = runner.run(request, hit)
        assert has_room, "the pool was made large enough"
        num_recomputed += num_prompt_tokens - hit.num_tokens if number else 0
    counted = occupancy(manager)
    return ForkCost(
        num_shared_blocks=counted.num_shared_blocks,
        num_private_blocks=counted.num_private_blocks,
        num_copied_blocks=runner.num_copies,
        num_recomputed_tokens=num_recomputed,
    )
