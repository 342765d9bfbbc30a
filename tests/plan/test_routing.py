"""Who serves a request, and what that does to hits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from prefixaudit.core.trace import BlockTrace
from prefixaudit.errors import UsageError
from prefixaudit.plan.routing import replicas_of, requests_of
from prefixaudit.pool.lru import hits_at
from tests.plan.mooncake import DATA, read_trace
from tests.pool.traces import make_trace

B052 = DATA / "cases" / "B052-round-robin-over-ranks"


def hit_rate(trace: BlockTrace, replica_of: np.ndarray, number: int) -> float:
    hits = 0
    for positions in requests_of(replica_of, number):
        if len(positions):
            part = trace.of_requests(positions)
            nobody = np.zeros(len(positions), np.int32)
            hits += int(hits_at(part, nobody, [None], min_recomputed_tokens=1)[0].sum())
    return hits * trace.block_size / int(trace.num_prompt_tokens.sum())


def test_case_b052_round_robin_below_affinity_below_one_cache() -> None:
    expected = json.loads((B052 / "expected.json").read_bytes())["answer"]
    trace = read_trace(str(B052 / "trace.jsonl"))
    found = {}
    for routing, name in (("round-robin", "round_robin"), ("session", "session_affinity")):
        replica_of = replicas_of(trace, routing, 4).replica_of
        assert replica_of is not None
        found[f"{name}_hit_ratio"] = hit_rate(trace, replica_of, 4)
    found["single_cache_hit_ratio"] = hit_rate(trace, np.zeros(trace.num_requests, np.int64), 1)

    assert found == pytest.approx(expected, abs=0.005)


def given(trace: BlockTrace, routing: str, number: int) -> np.ndarray:
    replica_of = replicas_of(trace, routing, number).replica_of
    assert replica_of is not None
    return replica_of


def test_equal_beginnings_go_to_one_replica() -> None:
    """The first 4 blocks decide, whatever follows them."""
    prompts = [[c] * 8 + [after] * 4 for c in range(40) for after in (50, 60, 70)]
    trace = make_trace(prompts, block_size=2)

    found = given(trace, "consistent-hash", 5).reshape(40, 3)

    assert (found == found[:, :1]).all()
    assert len(np.unique(found)) == 5


def test_another_replica_takes_only_its_share() -> None:
    """Rendezvous hashing: whoever moves, moves to the new one."""
    trace = make_trace([[c % 200, c // 200] * 4 for c in range(400)], block_size=2)

    before, after = given(trace, "consistent-hash", 4), given(trace, "consistent-hash", 5)

    moved = before != after
    assert set(after[moved].tolist()) == {4}
    assert 0.1 < moved.mean() < 0.3


def test_round_robin_follows_arrival() -> None:
    trace = make_trace([[1]] * 5, block_size=1)

    assert given(trace, "round-robin", 2).tolist() == [0, 1, 0, 1, 0]


def test_random_is_the_same_every_time() -> None:
    trace = make_trace([[1]] * 50, block_size=1)

    assert given(trace, "random", 3).tolist() == given(trace, "random", 3).tolist()
    assert set(given(trace, "random", 3).tolist()) == {0, 1, 2}


def test_unknown_routing_is_named() -> None:
    with pytest.raises(UsageError, match="routing 'sticky'"):
        replicas_of(make_trace([[1]], block_size=1), "sticky", 2)
