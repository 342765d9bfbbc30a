"""Small pools and requests for the tests of vLLM's pool; keys are plain integers."""

from __future__ import annotations

from collections.abc import Sequence

from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import GroupRules, PoolRules, pool_rules, release_rules

BLOCK = 4
"""Tokens a block in these tests."""


def full(block_size: int = BLOCK, *, drops: bool = False) -> GroupRules:
    return GroupRules(kind="full", block_size=block_size, drops_last_block=drops)


def swa(window: int, block_size: int = BLOCK) -> GroupRules:
    return GroupRules(kind="swa", block_size=block_size, window_tokens=window)


def chunked(chunk: int, block_size: int = BLOCK) -> GroupRules:
    return GroupRules(kind="chunked-local", block_size=block_size, window_tokens=chunk)


def mamba(block_size: int = BLOCK) -> GroupRules:
    return GroupRules(kind="mamba", block_size=block_size)


def rules(
    *groups: GroupRules,
    version: str = "0.33.0",
    hash_block_size: int | None = None,
    retention: int | None = None,
    use_eagle: bool = False,
) -> PoolRules:
    return pool_rules(
        release_rules(version),
        groups or (full(),),
        hash_block_size=hash_block_size,
        retention_interval_tokens=retention,
        use_eagle=use_eagle,
    )


def manager(pool: PoolRules, usable_blocks: int) -> PoolManager:
    return PoolManager(pool, usable_blocks + 1)


def request(
    number: int, num_tokens: int, keys: Sequence[int] | None = None, *, unit: int = BLOCK
) -> PoolRequest:
    """Return a request; without `keys` its blocks are its own."""
    own = [1_000 * (number + 1) + place for place in range(num_tokens // unit + 8)]
    return PoolRequest(
        number=number,
        keys=own if keys is None else [*keys, *own[len(keys) :]],
        num_prompt_tokens=num_tokens,
        num_tokens=num_tokens,
    )


def add(pool: PoolManager, new: PoolRequest, *, first: int | None = None) -> int | None:
    """Look up and compute a prompt (or its first missing tokens); the hit, None without room."""
    hit = pool.look_up(new)
    num_tokens = new.num_tokens - hit.num_tokens
    if first is not None:
        num_tokens = min(num_tokens, first)
    if not pool.allocate(new, num_tokens, hit=hit):
        return None
    pool.finish_copies()
    new.num_computed_tokens = hit.num_tokens + num_tokens
    return hit.num_tokens


def compute(pool: PoolManager, running: PoolRequest, num_tokens: int) -> bool:
    """Compute further tokens; beyond the prompt they are the answer's."""
    end = running.num_computed_tokens + num_tokens
    running.num_tokens = max(running.num_tokens, end)
    has_room = pool.allocate(running, num_tokens)
    pool.finish_copies()
    if has_room:
        running.num_computed_tokens = end
    return has_room
