"""Eviction by rank against plain simulations of single blocks, and against published figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prefixaudit.chain.partial import with_partial_blocks
from prefixaudit.core.trace import BlockTrace
from prefixaudit.errors import UsageError
from prefixaudit.plan.policies import hits_by_policy
from prefixaudit.pool.explicit_blocks import block_ids
from prefixaudit.pool.lru import hits_at, lookup_limits
from tests.plan.mooncake import mooncake
from tests.pool.traces import make_trace

PROMPTS = st.lists(st.lists(st.integers(0, 1), max_size=14), min_size=1, max_size=16)


def hits_of(trace: BlockTrace, policy: str, capacity: int) -> list[int]:
    [found] = hits_by_policy(
        trace,
        np.zeros(trace.num_requests, np.int32),
        policies=[policy],
        capacities_blocks=[capacity],
    )
    return [int(number) for number in found.num_hit_blocks]


def by_blocks(trace: BlockTrace, policy: str, capacity: int) -> list[int]:
    """Simulate single blocks: of the leaves that aren't in use the one of least rank goes."""
    limits = lookup_limits(trace, 1).tolist()
    requests = [block_ids(trace, place).tolist() for place in range(trace.num_requests)]
    held: dict[int, tuple[int, ...]] = {}
    count: dict[int, int] = {}
    parent: dict[int, int] = {}
    hits = []
    for now, blocks in enumerate(requests):
        for before, block in zip([-1, *blocks], blocks, strict=False):
            parent[block] = before
        hit = 0
        while hit < limits[now] and blocks[hit] in held:
            hit += 1
        hits.append(hit)

        def leaf_of_least_rank(kept: set[int]) -> int | None:
            used = {parent[block] for block in held}
            # Of one rank, which a run's blocks share, the tail goes: the only leaf among them.
            leaves = [block for block in held if block not in used and block not in kept]
            return min(leaves, key=lambda block: held[block], default=None)

        needed = sum(block not in held for block in blocks)
        while capacity - len(held) < needed:
            leaf = leaf_of_least_rank(set(blocks))
            if leaf is None:
                break
            del held[leaf]
        for block in blocks:
            if block not in held:
                if len(held) == capacity:
                    break
                count[block] = 0
            count[block] += 1
            if policy == "fifo":
                held.setdefault(block, (now,))
            elif policy == "lru":
                held[block] = (now,)
            elif policy == "lfu":
                held[block] = (count[block], now)
            else:
                held[block] = (count[block] > 1, now)
    return hits


def optimum(trace: BlockTrace, capacity: int) -> int:
    """Return the hits of Belady's rule over single blocks, each dropped when it is the last one."""
    limits = lookup_limits(trace, 1).tolist()
    requests = [block_ids(trace, place).tolist() for place in range(trace.num_requests)]
    held: set[int] = set()
    hits = 0
    for now, blocks in enumerate(requests):
        hit = 0
        while hit < limits[now] and blocks[hit] in held:
            hit += 1
        hits += hit
        held |= set(blocks)

        def again(block: int, after: int = now) -> tuple[int, int]:
            uses = [
                later
                for later in range(after + 1, len(requests))
                if block in requests[later][: limits[later]]
            ]
            # Of equal times the one that stands deeper goes first.
            depth = max(r.index(block) for r in requests if block in r)
            return (uses[0] if uses else len(requests), depth)

        while len(held) > capacity:
            held.remove(max(held, key=again))
    return hits


@settings(deadline=None, max_examples=120)
@given(prompts=PROMPTS, capacity=st.integers(1, 12), block_size=st.integers(1, 2))
def test_lru_is_plain_lru(prompts: list[list[int]], capacity: int, block_size: int) -> None:
    trace = make_trace(prompts, block_size=block_size)

    found = hits_of(trace, "lru", capacity)

    expected = hits_at(
        trace, np.zeros(len(prompts), np.int32), [capacity], min_recomputed_tokens=1
    )[0]
    assert found == expected.tolist()


@settings(deadline=None, max_examples=120)
@example(
    prompts=[[1, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 1], [0, 0], [0, 1, 0]],
    capacity=3,
    policy="lfu",
)
@given(
    prompts=PROMPTS,
    capacity=st.integers(1, 12),
    policy=st.sampled_from(["fifo", "lru", "lfu", "slru"]),
)
def test_policy_equals_a_simulation_of_single_blocks(
    prompts: list[list[int]], capacity: int, policy: str
) -> None:
    # One block a run: a request's tail beyond its last lookup has no run of its own otherwise.
    trace = make_trace(prompts, block_size=2)

    assert hits_of(trace, policy, capacity) == by_blocks(trace, policy, capacity)


@settings(deadline=None, max_examples=120)
@given(prompts=PROMPTS, capacity=st.integers(1, 12))
def test_belady_is_the_optimum_and_the_ceiling(prompts: list[list[int]], capacity: int) -> None:
    trace = make_trace(prompts, block_size=2)

    found = sum(hits_of(trace, "belady", capacity))

    assert found == optimum(trace, capacity)
    for policy in ("lru", "fifo", "lfu", "slru"):
        assert sum(hits_of(trace, policy, capacity)) <= found


def test_fifo_evicts_by_age_and_lru_by_use() -> None:
    """Three prompts of one block, a pool of two; the first is used again before the third comes."""
    trace = make_trace([[1, 1, 0], [2, 2, 0], [1, 1, 0], [3, 3, 0], [1, 1, 0]], block_size=2)

    assert hits_of(trace, "fifo", 2)[4] == 0
    assert hits_of(trace, "lru", 2)[4] == 1


def test_published_lru_column_and_belady() -> None:
    """kvcache-simulator's figures for the conversation trace, in tokens.

    Last half of the requests, the partial last block may hit: 4.5, 5.6, 18.8, 27.9, 35.6 % for LRU
    at 512 to 32,768 blocks, 39.8 % for Belady at 8,192.
    """
    trace = mooncake("conversation")
    ids = with_partial_blocks(trace)
    tokens = trace.num_prompt_tokens
    late = trace.replay_order()[trace.num_requests // 2 :]
    found = hits_by_policy(
        ids,
        np.zeros(trace.num_requests, np.int32),
        policies=["lru", "belady"],
        capacities_blocks=[512, 2048, 8192, 16384, 32768],
        min_recomputed_tokens=0,
    )

    percents = [
        round(
            100
            * float(np.minimum(each.num_hit_blocks * 512, tokens)[late].sum() / tokens[late].sum()),
            1,
        )
        for each in found
    ]

    assert percents[:5] == [4.5, 5.6, 18.8, 27.9, 35.6]
    assert percents[7] == 39.8


def test_unknown_policy_is_named() -> None:
    with pytest.raises(UsageError, match="policy to plan with 'mru'"):
        hits_of(make_trace([[1, 2]], block_size=1), "mru", 2)
