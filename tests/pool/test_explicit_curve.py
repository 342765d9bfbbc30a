"""Where one pass is exact: against the operation model at every capacity, and where it isn't."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace
from prefixaudit.engines import load_profile
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool
from prefixaudit.pool.explicit_curve import (
    block_pool_curve,
    block_pool_rules,
    exact_from_blocks,
    one_pass_is_exact,
    trace_facts,
)
from tests.pool.test_explicit import operate, random_trace
from tests.pool.traces import make_trace

OLD, NEW = "vllm@0.23.0", "vllm@0.24.0"


def rules_of(engine: str) -> BlockPoolRules:
    rules = block_pool_rules(load_profile(engine))
    assert rules is not None
    return rules


def explicit_hits(trace: BlockTrace, capacity_blocks: int, rules: BlockPoolRules) -> int:
    pool = simulate_pool(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=capacity_blocks,
        rules=rules,
    )
    return int(pool.lookups.num_cached_tokens.sum()) // trace.block_size


@settings(max_examples=120, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), max_size=9),
            st.lists(st.integers(0, 1), max_size=5),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=12,
    ),
    block_size=st.integers(1, 3),
    engine=st.sampled_from([OLD, NEW]),
)
def test_curve_equals_the_operation_model_at_every_capacity(
    requests: list[tuple[list[int], list[int], int]], block_size: int, engine: str
) -> None:
    """Prompts that end on a token of their own never compute a block that is there already."""
    trace = make_trace(
        [[*prompt, 100 + number] for number, (prompt, _, _) in enumerate(requests)],
        block_size=block_size,
        answers=[answer for _, answer, _ in requests],
    )
    namespaces = [namespace for *_, namespace in requests]
    numbers = np.asarray(namespaces, np.int32)
    rules = rules_of(engine)
    facts = trace_facts(trace, numbers, rules)

    exact, _ = one_pass_is_exact(load_profile(engine), facts)
    curve = block_pool_curve(trace, numbers, rules=rules)

    assert exact
    for capacity in range(exact_from_blocks(rules, facts), len(curve.num_cached_blocks) + 3):
        usable = capacity - rules.num_reserved_blocks
        expected = operate(trace, namespaces, capacity_blocks=usable, rules=rules)
        assert curve.at(capacity)[0] == sum(len(donors) for donors in expected.donors)


@pytest.mark.parametrize("engine", [OLD, NEW])
def test_flops_follow_the_hits(engine: str) -> None:
    """A block saves its depth + 1, so a request of k hit blocks saves k (k + 1) / 2."""
    trace, namespaces = random_trace(num_requests=60, seed=11)
    numbers = np.asarray(namespaces, np.int32)
    rules = rules_of(engine)

    curve = block_pool_curve(trace, numbers, rules=rules, flops_by_depth=np.arange(1.0, 100.0))

    assert len(curve.flops_saved) == len(curve.num_cached_blocks)
    endless = simulate_pool(trace, numbers, capacity_blocks=None, rules=rules)
    hits = endless.lookups.num_cached_tokens // trace.block_size
    assert curve.at(None) == (int(hits.sum()), float((hits * (hits + 1) / 2).sum()))


def test_aligned_repeats_are_not_exact_and_the_reason_says_so() -> None:
    trace = make_trace([[1] * 4] * 3, block_size=2)
    facts = trace_facts(trace, np.zeros(3, np.int32), rules_of(NEW))

    exact, reason = one_pass_is_exact(load_profile(NEW), facts)

    assert facts.num_repeated_blocks == 2
    assert not exact
    assert "2 blocks" in reason


def test_copies_can_change_the_hits() -> None:
    """Why such a trace is not exact: copies of A's second block push B out of a pool of 4.

    B takes a block and a tail; A takes 2 and 2 are left over. Each repeat of A hits its first block
    and computes its second again, which takes the block that is left over and then B's. Plain LRU
    holds A1, A2 and B all the time.
    """
    a, b = [1] * 4, [2, 2, 9]
    trace = make_trace([b, a, a, a, b], block_size=2)
    rules = replace(rules_of(NEW), num_reserved_blocks=0)
    curve = block_pool_curve(trace, np.zeros(5, np.int32), rules=rules)

    assert explicit_hits(trace, 4, rules) == 2
    assert curve.at(4)[0] == 3


def test_dropped_block_of_a_drafter_is_not_exact() -> None:
    trace = make_trace([[1, 2, 3]], block_size=2)
    facts = trace_facts(trace, np.zeros(1, np.int32), rules_of(NEW))

    assert one_pass_is_exact(load_profile(NEW), facts)[0]
    assert not one_pass_is_exact(load_profile(NEW), facts, use_eagle=True)[0]


def test_reference_is_plain_lru() -> None:
    assert one_pass_is_exact(load_profile("reference"), None)[0]


@pytest.mark.parametrize("engine", [OLD, NEW])
def test_curve_is_near_where_copies_are_few(engine: str) -> None:
    """The curve of a log with some aligned repeats stays within 2 % of the explicit pool."""
    trace, namespaces = random_trace(num_requests=600, seed=7)
    numbers = np.asarray(namespaces, np.int32)
    rules = rules_of(engine)
    facts = trace_facts(trace, numbers, rules)
    curve = block_pool_curve(trace, numbers, rules=rules)

    for capacity in (exact_from_blocks(rules, facts), 100, 200, 400):
        pool = simulate_pool(trace, numbers, capacity_blocks=capacity, rules=rules)
        hits = int(pool.lookups.num_cached_tokens.sum()) // trace.block_size
        assert curve.at(capacity)[0] == pytest.approx(hits, rel=0.02)


def test_releases_differ_where_the_regimes_do() -> None:
    """The same log and pool under 0.23 and 0.24: tails that queue with the rest cost hits."""
    prompts = [[1, 1, 8], [2, 2, 8], [3, 3, 8]] * 2
    trace = make_trace(prompts, block_size=2)

    hits = {engine: explicit_hits(trace, 5, rules_of(engine)) for engine in (OLD, NEW)}
    curves = {
        engine: block_pool_curve(trace, np.zeros(6, np.int32), rules=rules_of(engine)).at(5)[0]
        for engine in (OLD, NEW)
    }

    assert hits == {OLD: 0, NEW: 3}
    assert curves == hits
