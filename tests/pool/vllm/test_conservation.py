"""Laws that hold after every operation, whatever the groups: no block is lost or made up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import Scheduler, SchedulerRules, ServedRequest
from prefixaudit.pool.vllm.sharing import occupancy
from tests.pool.vllm.pools import BLOCK, add, chunked, compute, full, mamba, request, rules, swa

POOLS = {
    "full up to 0.23": rules(full(), version="0.23.0"),
    "full": rules(full()),
    "eagle": rules(full(), use_eagle=True),
    "window": rules(swa(9)),
    "hybrid": rules(full(), swa(9)),
    "hybrid, sparse": rules(full(), swa(9), retention=0),
    "hybrid, eagle": rules(full(), swa(9), use_eagle=True),
    "larger full blocks": rules(full(8), swa(9)),
    "larger window blocks": rules(full(), swa(13, block_size=8)),
    "chunked": rules(full(), chunked(8)),
    "mamba": rules(full(), mamba()),
    "mamba, sparse": rules(full(), mamba(), retention=0),
    "mamba up to 0.23": rules(full(), mamba(), version="0.22.0"),
    "mamba, finer units": rules(full(8), mamba(8), hash_block_size=4),
    "three kinds": rules(full(), swa(9), mamba(), full()),
}
OPERATION = st.tuples(
    st.sampled_from(["add", "add", "compute", "decode", "free", "reset"]),
    st.integers(1, 40),
    st.lists(st.integers(0, 1), max_size=10),
)


def chain(branches: list[int]) -> list[int]:
    """Number the nodes of a binary tree along a path, so that equal prefixes have equal keys."""
    keys, node = [], 1
    for branch in branches:
        node = 2 * node + branch
        keys.append(node)
    return keys


def check_blocks(manager: PoolManager) -> None:
    """Compare the pool's own counts with what its tables and its queue say."""
    pool = manager.pool
    held = Counter(
        block
        for group in manager.coordinator.groups
        for table in group.tables.values()
        for block in table
        if block
    )
    free = pool.free_blocks()
    assert len(free) == pool.num_free_blocks == len(set(free))
    assert {block: pool.references[block] for block in held} == dict(held)
    assert set(free).isdisjoint(held)
    assert len(free) + len(held) == pool.num_blocks - 1
    counted = occupancy(manager)
    assert counted.num_used_blocks + counted.num_free_blocks == counted.num_usable_blocks
    assert counted.num_cached_free_blocks <= counted.num_free_blocks
    for block in range(1, pool.num_blocks):
        key = pool.key_of(block)
        if key is not None:
            group = pool.group_of(block)
            assert pool.find(key, group) is not None


@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(OPERATION, max_size=30), st.integers(12, 40))
def test_no_block_is_lost(
    name: str, operations: list[tuple[str, int, list[int]]], num_usable: int
) -> None:
    pool = PoolManager(POOLS[name], num_usable + 1)
    running: list[PoolRequest] = []
    for number, (kind, size, branches) in enumerate(operations):
        pool.new_step()
        if kind == "add":
            new = request(number, size, chain(branches)[: size // BLOCK])
            if add(pool, new, first=size // 2 + 1) is not None:
                running.append(new)
        elif kind == "reset":
            assert pool.reset() == (pool.num_free_blocks == num_usable)
        elif running:
            chosen = running[size % len(running)]
            rest = chosen.num_prompt_tokens - chosen.num_computed_tokens
            num_tokens = min(rest, size) if kind == "compute" and rest > 0 else max(rest, 0) + 1
            if kind == "free" or not compute(pool, chosen, num_tokens):
                pool.free(chosen)
                running.remove(chosen)
        check_blocks(pool)
    for chosen in running:
        pool.free(chosen)
    assert pool.num_free_blocks == num_usable


ARRIVAL = st.tuples(
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.integers(0, 1), max_size=10),
)


@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(ARRIVAL, max_size=12), st.integers(40, 80), st.integers(8, 40), st.integers(1, 4))
def test_tokens_computed_and_hit_add_up(
    name: str,
    arrivals: list[tuple[int, int, int, list[int]]],
    num_usable: int,
    budget: int,
    max_num_seqs: int,
) -> None:
    """Computed + hit = prompt + answer without its last token + what preemption threw away."""
    scheduler = _scheduler(POOLS[name], num_usable, budget, max_num_seqs)
    requests = []
    for number, (gap, size, answer, branches) in enumerate(arrivals):
        own = request(number, size + answer, chain(branches)[: size // BLOCK])
        requests.append(
            ServedRequest(
                number=number,
                keys=own.keys,
                num_prompt_tokens=size,
                num_tokens=size,
                num_answer_tokens=answer,
            )
        )
        for _ in range(gap):
            scheduler.step()
        scheduler.add(requests[-1])
    while scheduler.running or scheduler.waiting:
        done = scheduler.step()
        assert done.num_tokens <= budget
        assert len(scheduler.running) <= max_num_seqs
        check_blocks(scheduler.manager)
        assert done.stuck is None
    for served in requests:
        assert served.num_scheduled_tokens + served.num_hit_tokens == (
            served.num_prompt_tokens + served.num_answer_tokens - 1 + served.num_discarded_tokens
        )
        assert served.finish_step >= served.first_step >= 0
    assert scheduler.manager.num_free_blocks == num_usable


def _scheduler(pool: PoolRules, num_usable: int, budget: int, max_num_seqs: int) -> Scheduler:
    return Scheduler(
        pool,
        num_usable + 1,
        SchedulerRules(
            max_num_batched_tokens=budget, max_num_seqs=max_num_seqs, max_model_tokens=1_000
        ),
    )
