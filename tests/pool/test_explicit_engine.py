"""One call for every engine: what is run, what is said of it, and figures by hand."""

from __future__ import annotations

import numpy as np
import pytest

from prefixaudit.core.engine import EngineProfile
from prefixaudit.engines import load_profile
from prefixaudit.errors import UsageError
from prefixaudit.pool import explicit_engine
from prefixaudit.pool.explicit_engine import describe_pool, simulate_engine
from tests.pool.test_explicit import random_trace
from tests.pool.traces import make_trace


def hits(profile: EngineProfile | None, capacity_blocks: int, **options: str) -> list[int]:
    """Return hit tokens of prompts of 2 + 1 tokens, three of them in turns, blocks of 2."""
    trace = make_trace([[1, 1, 8], [2, 2, 8], [3, 3, 8]] * 2, block_size=2)
    (pool,) = simulate_engine(
        trace,
        np.zeros(6, np.int32),
        profile=profile,
        capacities_blocks=[capacity_blocks],
        policy=options.get("policy"),
    )
    return [int(count) for count in pool.lookups.num_cached_tokens]


def test_vllm_releases_differ_where_their_regimes_do() -> None:
    """5 blocks, one of them the null block: worked out in test_explicit."""
    assert hits(load_profile("vllm@0.23.0"), 5) == [0, 0, 0, 0, 0, 0]
    assert hits(load_profile("vllm@0.24.0"), 5) == [0, 0, 0, 2, 2, 2]


def test_regime_is_named() -> None:
    assert "'all-to-back'" in describe_pool(load_profile("vllm@0.23.0"))
    assert "'unhashed-to-front'" in describe_pool(load_profile("vllm@0.24.0"))
    assert "whole unlocked leaves" in describe_pool(load_profile("sglang@0.5.23"))
    assert "need" in describe_pool(load_profile("sglang@0.5.16"))
    assert describe_pool(None) == "plain LRU of full blocks"


def test_sglang_frees_tails_and_keeps_whole_pages() -> None:
    """A prompt asks for 3 tokens and one page more (5 of 8): each third prompt evicts one page.

    Pages of 2 in 4 blocks: A, B stay after two prompts; C finds 4 tokens free, asks for 5 and
    evicts A (shortfall 1, a page); then A evicts B, and so on: nobody hits.
    """
    assert hits(load_profile("sglang@0.5.23"), 4) == [0, 0, 0, 0, 0, 0]
    assert hits(load_profile("sglang@0.5.23"), 6) == [0, 0, 0, 2, 2, 2]


def test_policy_of_a_tree_can_be_chosen() -> None:
    """Most recently used first: in 4 blocks C evicts B, and A is still there."""
    assert hits(load_profile("sglang@0.5.23"), 4, policy="mru")[3] == 2

    with pytest.raises(UsageError, match="unknown eviction policy 'clock'"):
        hits(load_profile("sglang@0.5.23"), 4, policy="clock")


def test_reference_is_plain_lru() -> None:
    """3 blocks hold A, B and C; tails aren't in the pool."""
    assert hits(load_profile("reference"), 3) == [0, 0, 0, 2, 2, 2]
    assert hits(None, 2) == [0, 0, 0, 0, 0, 0]


def test_trees_in_processes_of_their_own_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, namespaces = random_trace(num_requests=80, seed=2)
    monkeypatch.setattr(explicit_engine, "_WORTH_A_PROCESS", 0)

    def run(jobs: int) -> list[tuple[list[int], int | None]]:
        pools = simulate_engine(
            trace,
            np.asarray(namespaces, np.int32),
            profile=load_profile("sglang@0.5.23"),
            capacities_blocks=[40, 80, None],
            jobs=jobs,
        )
        return [
            (pool.lookups.num_cached_tokens.tolist(), pool.num_evicted_blocks) for pool in pools
        ]

    assert run(2) == run(1)
