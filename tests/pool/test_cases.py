"""Published cases through the pools of the engines: B041 and B049, as their answers stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixaudit.core.trace import BlockTrace
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool
from prefixaudit.pool.explicit_curve import block_pool_curve
from prefixaudit.pool.sglang.rules import rules_of
from prefixaudit.pool.sglang.sequential import replay_sequential
from tests.pool.traces import make_trace

CASES = Path(__file__).parents[1] / "data" / "cases"
REGIMES = pytest.mark.parametrize("unhashed_first", [False, True], ids=["0.23", "0.24"])


def answer(case: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((CASES / case / "expected.json").read_bytes())
    found: dict[str, Any] = expected["answer"]
    return found


def trace_of(case: str, *, block_size: int) -> BlockTrace:
    lines = (CASES / case / "requests.jsonl").read_text().splitlines()
    return make_trace([json.loads(line)["body"]["prompt"] for line in lines], block_size=block_size)


def vllm_hits(trace: BlockTrace, capacity_blocks: int, *, unhashed_first: bool) -> list[int]:
    pool = simulate_pool(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=capacity_blocks,
        rules=BlockPoolRules(unhashed_first=unhashed_first),
    )
    return [int(count) for count in pool.lookups.num_cached_tokens]


@REGIMES
def test_b041_whole_blocks_without_the_last_token(unhashed_first: bool) -> None:
    case = "B041-last-token-and-block-rounding"
    trace = trace_of(case, block_size=16)

    found = vllm_hits(trace, 1000, unhashed_first=unhashed_first)

    rows = answer(case)["per_length"]
    assert trace.num_prompt_tokens[1::2].tolist() == [row["prompt_tokens"] for row in rows]
    assert found[0::2] == [0] * len(rows)
    assert found[1::2] == [row["cached_tokens_on_repeat"] for row in rows]


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_b041_sglang_with_pages_of_one_token(version: str) -> None:
    case = "B041-last-token-and-block-rounding"
    trace = trace_of(case, block_size=1)

    lookups = replay_sequential(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_tokens=10_000,
        policy="lru",
        rules=rules_of(version),
    ).lookups

    rows = answer(case)["sglang_page_size_1"]
    assert lookups.num_cached_tokens[1::2].tolist() == [
        row["cached_tokens_on_repeat"] for row in rows
    ]


@REGIMES
def test_b049_two_sessions_take_turns(unhashed_first: bool) -> None:
    """Both references agree at 14 blocks and on the smallest pool; a tail takes a block there."""
    case = "B049-two-sessions-take-turns"
    trace = trace_of(case, block_size=16)
    right = answer(case)

    def hits(capacity_blocks: int) -> list[int]:
        return vllm_hits(trace, capacity_blocks, unhashed_first=unhashed_first)

    assert hits(14) == right["hit_tokens_pool_14"]
    assert hits(14) == right["second_reference"]["hit_tokens_pool_14"]
    assert hits(40) == right["hit_tokens_pool_40"]
    smallest = next(capacity for capacity in range(41) if hits(capacity) == hits(40))
    assert abs(smallest - right["smallest_pool_with_full_reuse"]) <= 3


@REGIMES
def test_b049_curve_is_the_pool_from_the_largest_request_on(unhashed_first: bool) -> None:
    trace = trace_of("B049-two-sessions-take-turns", block_size=16)
    rules = BlockPoolRules(unhashed_first=unhashed_first)
    curve = block_pool_curve(trace, np.zeros(8, np.int32), rules=rules)

    # 177 tokens are 12 blocks, the last one in part.
    for capacity in range(12, 45):
        explicit = sum(vllm_hits(trace, capacity, unhashed_first=unhashed_first)) // 16
        assert curve.at(capacity)[0] == explicit
