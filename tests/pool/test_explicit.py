"""The explicit block pool against the plain operation model of vLLM's pool, and cases by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace
from prefixaudit.pool import explicit
from prefixaudit.pool.explicit import (
    BlockPoolRules,
    SimulatedPool,
    simulate_pool,
    simulate_pool_at,
)
from prefixaudit.pool.explicit_blocks import block_ids
from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import GroupRules, pool_rules, release_rules
from tests.pool.traces import make_trace

NEW = BlockPoolRules(unhashed_first=True)
OLD = BlockPoolRules(unhashed_first=False)


@dataclass(frozen=True)
class Operated:
    """What the operation model says: hit blocks and their donors, a list a request."""

    donors: list[list[int]]
    num_refused: int
    num_cut_answers: int
    num_evicted_blocks: int
    num_unhashed_blocks: int


def operate(
    trace: BlockTrace, namespaces: Sequence[int], *, capacity_blocks: int, rules: BlockPoolRules
) -> Operated:
    """Run each request through the operation model: look up, prefill, decode one by one, free."""
    size = trace.block_size
    manager = PoolManager(
        pool_rules(
            release_rules("0.33.0" if rules.unhashed_first else "0.22.0"),
            (GroupRules(kind="full", block_size=size),),
            use_eagle=rules.drops_last_block,
        ),
        capacity_blocks + 1,
    )
    result = Operated([], 0, 0, 0, 0)
    refused = cut = unhashed = evicted = 0
    for position in range(trace.num_requests):
        num_prompt_tokens = int(trace.num_prompt_tokens[position])
        request = PoolRequest(
            number=position,
            keys=[(namespaces[position], key) for key in block_ids(trace, position).tolist()],
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=num_prompt_tokens,
            reads_cache=bool(trace.reads_cache[position]),
        )
        hit = manager.look_up(request)
        donors = [manager.pool.stored_by[block] for block in hit.blocks[0]]
        if not manager.allocate(request, num_prompt_tokens - hit.num_tokens, hit=hit):
            refused += 1
            result.donors.append([])
            continue
        result.donors.append(donors)
        request.num_computed_tokens = num_prompt_tokens
        for _ in range(int(trace.num_generated_tokens[position])):
            request.num_tokens += 1
            if not manager.allocate(request, 1):
                cut += 1
                break
            request.num_computed_tokens += 1
        table = manager.tables(request)[0]
        unhashed += sum(manager.pool.key_of(block) is None for block in table)
        manager.free(request)
        evicted += len(manager.take_evicted())
    return Operated(result.donors, refused, cut, evicted, unhashed)


def donors_of(pool: SimulatedPool, block_size: int) -> list[list[int]]:
    """Return the donor of each hit block, a list a request."""
    lookups = pool.lookups
    found = []
    for start, end in zip(lookups.donor_offsets, lookups.donor_offsets[1:], strict=False):
        runs = zip(
            lookups.donors[start:end].tolist(),
            (lookups.donor_num_tokens[start:end] // block_size).tolist(),
            strict=True,
        )
        found.append([donor for donor, count in runs for _ in range(count)])
    return found


TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
REQUESTS = st.lists(
    st.tuples(TOKENS, st.lists(st.integers(0, 1), max_size=4), st.integers(0, 1), st.booleans()),
    min_size=1,
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(
    requests=REQUESTS,
    block_size=st.integers(1, 3),
    capacity_blocks=st.integers(0, 14),
    unhashed_first=st.booleans(),
    drops_last_block=st.booleans(),
)
def test_equals_the_operation_model(
    requests: list[tuple[list[int], list[int], int, bool]],
    block_size: int,
    capacity_blocks: int,
    unhashed_first: bool,
    drops_last_block: bool,
) -> None:
    trace = make_trace(
        [prompt for prompt, *_ in requests],
        block_size=block_size,
        answers=[answer for _, answer, *_ in requests],
        reads_cache=[reads for *_, reads in requests],
    )
    namespaces = [namespace for *_, namespace, _ in requests]
    rules = BlockPoolRules(unhashed_first=unhashed_first, drops_last_block=drops_last_block)

    expected = operate(trace, namespaces, capacity_blocks=capacity_blocks, rules=rules)
    pool = simulate_pool(
        trace, np.asarray(namespaces, np.int32), capacity_blocks=capacity_blocks, rules=rules
    )

    found = donors_of(pool, block_size)
    assert found == expected.donors
    assert (pool.lookups.num_cached_tokens // block_size).tolist() == [len(d) for d in found]
    assert pool.num_refused == expected.num_refused
    assert pool.num_cut_answers == expected.num_cut_answers
    assert pool.num_evicted_blocks == expected.num_evicted_blocks
    assert pool.num_unhashed_blocks == expected.num_unhashed_blocks


def random_trace(*, num_requests: int, seed: int) -> tuple[BlockTrace, list[int]]:
    """Return sessions that grow turn by turn, of three namespaces, with answers."""
    random = np.random.default_rng(seed)
    sessions: list[list[int]] = []
    prompts, answers, namespaces = [], [], []
    for _ in range(num_requests):
        if not sessions or random.random() < 0.2:
            sessions.append(random.integers(0, 3, int(random.integers(4, 40))).tolist())
        number = int(random.integers(max(0, len(sessions) - 8), len(sessions)))
        prompt = sessions[number] + random.integers(0, 9, int(random.integers(0, 8))).tolist()
        answer = random.integers(0, 9, int(random.integers(0, 12))).tolist()
        prompts.append(prompt)
        answers.append(answer)
        namespaces.append(number % 3)
        sessions[number] = (prompt + answer)[:120]
    return make_trace(prompts, block_size=4, answers=answers), namespaces


@pytest.mark.parametrize("rules", [OLD, NEW], ids=["0.23", "0.24"])
def test_compiled_loop_equals_the_operation_model(rules: BlockPoolRules) -> None:
    """Long enough that the compiled loop runs; the property above runs the plain one."""
    trace, namespaces = random_trace(num_requests=600, seed=7)
    assert trace.num_block_accesses > 6_000

    for capacity_blocks in (20, 40, 90, 200):
        expected = operate(trace, namespaces, capacity_blocks=capacity_blocks, rules=rules)
        pool = simulate_pool(
            trace, np.asarray(namespaces, np.int32), capacity_blocks=capacity_blocks, rules=rules
        )

        assert donors_of(pool, 4) == expected.donors
        assert pool.num_evicted_blocks == expected.num_evicted_blocks


def test_compiled_loop_equals_its_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, namespaces = random_trace(num_requests=40, seed=9)
    pools = []
    for few in (0, 10**9):
        monkeypatch.setattr(explicit, "_FEW_STEPS", few)
        pools.append(
            simulate_pool(trace, np.asarray(namespaces, np.int32), capacity_blocks=50, rules=NEW)
        )

    assert donors_of(pools[0], 4) == donors_of(pools[1], 4)
    assert pools[0].num_evicted_blocks == pools[1].num_evicted_blocks > 0
    assert pools[0].num_operations == pools[1].num_operations


def test_results_do_not_depend_on_jobs() -> None:
    trace, namespaces = random_trace(num_requests=600, seed=3)
    numbers = np.asarray(namespaces, np.int32)
    capacities = [20, 33, 50, 80, 200, None]

    one = simulate_pool_at(trace, numbers, capacities_blocks=capacities, rules=NEW, jobs=1)
    four = simulate_pool_at(trace, numbers, capacities_blocks=capacities, rules=NEW, jobs=4)

    assert [pool.capacity_blocks for pool in four] == capacities
    for left, right in zip(one, four, strict=True):
        assert np.array_equal(left.lookups.num_cached_tokens, right.lookups.num_cached_tokens)
        assert left.num_evicted_blocks == right.num_evicted_blocks


def test_endless_pool_evicts_nothing() -> None:
    trace, namespaces = random_trace(num_requests=200, seed=5)

    pool = simulate_pool(trace, np.asarray(namespaces, np.int32), capacity_blocks=None, rules=NEW)

    assert pool.num_evicted_blocks == 0
    assert pool.num_refused == 0


def test_null_block_takes_one_from_the_pool() -> None:
    trace = make_trace([[1] * 8, [1] * 8], block_size=2)
    numbers = np.zeros(2, np.int32)
    with_null = BlockPoolRules(unhashed_first=True, num_reserved_blocks=1)

    refused = simulate_pool(trace, numbers, capacity_blocks=4, rules=with_null)
    served = simulate_pool(trace, numbers, capacity_blocks=5, rules=with_null)

    assert refused.num_refused == 2
    assert served.num_refused == 0


@pytest.mark.parametrize(
    ("length", "cached"), [(15, 0), (16, 0), (17, 16), (31, 16), (32, 16), (33, 32), (48, 32)]
)
def test_repeated_prompt_is_hit_in_whole_blocks_without_its_last_token(
    length: int, cached: int
) -> None:
    """Case B041: floor((n - 1) / 16) blocks; an aligned prompt computes its last block again."""
    trace = make_trace([list(range(length))] * 2, block_size=16)

    pool = simulate_pool(trace, np.zeros(2, np.int32), capacity_blocks=100, rules=NEW)

    assert pool.lookups.num_cached_tokens.tolist() == [0, cached]
    assert pool.num_duplicate_blocks == (length % 16 == 0)


def test_regimes_differ_where_tails_crowd_out_prefixes() -> None:
    """Prompts of one full block and a tail, A B C A B C, in a pool of 4 blocks.

    0.24: a tail's slot is the next one taken, so A, B and C stay, and one slot serves all tails.
    0.23: tails queue with the rest, and are as old as the block before them.
    """
    a, b, c = [1, 1, 8], [2, 2, 8], [3, 3, 8]
    trace = make_trace([a, b, c, a, b, c], block_size=2)
    numbers = np.zeros(6, np.int32)

    def hits(rules: BlockPoolRules) -> list[int]:
        pool = simulate_pool(trace, numbers, capacity_blocks=4, rules=rules)
        return [int(count) for count in pool.lookups.num_cached_tokens]

    # 0.24: [A][B][C] and one slot that all tails share. 0.23: after A and B the pool is
    # tail A, A, tail B, B; C takes tail A and A; A takes tail B and B; and so on: nobody hits.
    assert hits(NEW) == [0, 0, 0, 2, 2, 2]
    assert hits(OLD) == [0, 0, 0, 0, 0, 0]
