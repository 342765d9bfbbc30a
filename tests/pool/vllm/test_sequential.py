"""A trace through vLLM's pool, one request after another: published cases and laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace, Int32Array
from prefixaudit.errors import UsageError
from prefixaudit.pool.explicit_blocks import block_ids
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import Scheduler, SchedulerRules, ServedRequest
from prefixaudit.pool.vllm.sequential import SequentialReplay, replay_sequential
from tests.pool.traces import make_trace
from tests.pool.vllm.pools import full, mamba, rules, swa

FULL_16 = rules(full(16))


def together(trace: BlockTrace) -> Int32Array:
    return np.zeros(trace.num_requests, dtype=np.int32)


def hits(trace: BlockTrace, pool: PoolRules, capacity_blocks: int | None = None) -> list[int]:
    replay = replay_sequential(trace, together(trace), capacity_blocks=capacity_blocks, rules=pool)
    return [int(hit) for hit in replay.lookups.num_cached_tokens]


@pytest.mark.parametrize(
    ("length", "expected"), [(15, 0), (16, 0), (17, 16), (31, 16), (32, 16), (33, 32), (48, 32)]
)
def test_repeated_prompt_is_hit_in_whole_blocks_up_to_its_last_token(
    length: int, expected: int
) -> None:
    """Case B041."""
    prompt = list(range(length))
    trace = make_trace([prompt, prompt], block_size=16)

    assert hits(trace, FULL_16) == [0, expected]


def two_sessions() -> BlockTrace:
    """Two sessions take turns, each a block longer: 129, 129, 145, 145, … tokens (case B049)."""
    sessions = ([*range(1_000, 1_400)], [*range(2_000, 2_400)])
    prompts = [sessions[turn % 2][: 129 + 16 * (turn // 2)] for turn in range(8)]
    return make_trace(prompts, block_size=16)


@pytest.mark.parametrize("version", ["0.23.0", "0.24.0"])
def test_two_sessions_thrash_a_pool_that_is_too_small(version: str) -> None:
    """Case B049: the figures of the published case, for both orders of the free queue."""
    trace = two_sessions()
    pool = rules(full(16), version=version)

    assert hits(trace, pool, 14) == [0, 0, 80, 64, 64, 48, 48, 32]
    assert hits(trace, pool, 40) == [0, 0, 128, 128, 144, 144, 160, 160]
    # With 21 blocks the longest turn (12 blocks) still pushes out one of the other's 11.
    assert hits(trace, pool, 22) == hits(trace, pool)
    assert hits(trace, pool, 21) != hits(trace, pool)


def test_hybrid_block_of_528_needs_a_prefix_of_529() -> None:
    """Case B047: 480 shared tokens are no block of 528, 896 are one."""
    first, second = [*range(520)], [*range(480), *range(9_000, 9_040)]
    third, fourth = [*range(20_000, 20_979)], [*range(20_000, 20_896), *range(9_000, 9_083)]
    prompts = [first, second, third, fourth]

    hybrid = rules(full(528), mamba(528), retention=0)
    assert hits(make_trace(prompts, block_size=528), hybrid) == [0, 0, 0, 528]
    assert hits(make_trace(prompts, block_size=16), FULL_16) == [0, 480, 0, 896]


def test_generated_tokens_are_hit_by_the_next_turn() -> None:
    trace = make_trace(
        [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]], block_size=4, answers=[[4, 5, 6, 7, 8], []]
    )

    assert hits(trace, rules(full(4))) == [0, 8]


def test_donors_are_the_requests_that_stored_each_part() -> None:
    trace = make_trace([[1] * 4, [1] * 8, [1] * 13, [1] * 13], block_size=4)

    lookups = replay_sequential(
        trace, together(trace), capacity_blocks=None, rules=rules(full(4))
    ).lookups

    # The second request computed blocks 0 to 1 but hit 0; the third one hit both.
    assert lookups.num_cached_tokens.tolist() == [0, 4, 8, 12]
    assert lookups.donors.tolist() == [0, 0, 1, 0, 1, 2]
    assert lookups.donor_num_tokens.tolist() == [4, 4, 4, 4, 4, 4]


def test_donor_of_what_a_window_skipped_is_the_one_who_stored_the_window() -> None:
    trace = make_trace([[1] * 33, [1] * 33], block_size=4)

    lookups = replay_sequential(
        trace, together(trace), capacity_blocks=None, rules=rules(swa(9))
    ).lookups

    assert lookups.num_cached_tokens.tolist() == [0, 32]
    assert lookups.donors.tolist() == [0]


def test_namespaces_share_nothing() -> None:
    trace = make_trace([[1] * 9] * 3, block_size=4)

    lookups = replay_sequential(
        trace, np.asarray([0, 1, 0], np.int32), capacity_blocks=None, rules=rules(full(4))
    ).lookups

    assert lookups.num_cached_tokens.tolist() == [0, 0, 8]


def test_prompt_larger_than_the_pool_is_refused_and_evicts_nothing() -> None:
    trace = make_trace([[1] * 9, [*range(100, 140)], [1] * 9], block_size=4)

    replay = replay_sequential(trace, together(trace), capacity_blocks=8, rules=rules(full(4)))

    assert replay.refused.tolist() == [1]
    assert replay.num_evicted_keys == 0
    assert replay.lookups.num_cached_tokens.tolist() == [0, 0, 8]


def test_answer_without_room_is_cut_and_what_fitted_is_stored() -> None:
    trace = make_trace([[1] * 3, [1] * 15], block_size=4, answers=[[1] * 20, []])

    replay = replay_sequential(trace, together(trace), capacity_blocks=4, rules=rules(full(4)))

    assert replay.cut_answers.tolist() == [0]
    assert replay.lookups.num_cached_tokens.tolist() == [0, 12]


def test_regimes_differ_under_pressure() -> None:
    """6 blocks: [1] * 9 leaves 1a, 1b and a tail t1 without a key, [2] * 13 uses the other four.

    Then up to 0.23 the queue is 1b 1a t2 2c 2b 2a, and a prompt of 2 blocks evicts all of [1]; from
    0.24 it is t2 1b 1a 2c 2b 2a, and 1a survives.
    """
    trace = make_trace([[1] * 9, [2] * 13, [3] * 5, [1] * 9], block_size=4)

    assert hits(trace, rules(full(4), version="0.23.0"), 6) == [0, 0, 0, 0]
    assert hits(trace, rules(full(4), version="0.24.0"), 6) == [0, 0, 0, 4]


def test_trace_of_another_block_size_is_refused() -> None:
    trace = make_trace([[1] * 9], block_size=4)

    with pytest.raises(UsageError):
        replay_sequential(trace, together(trace), capacity_blocks=None, rules=FULL_16)


PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=10)
POOLS = {
    "full": rules(full(2)),
    "full up to 0.23": rules(full(2), version="0.23.0"),
    "hybrid": rules(full(2), swa(5, block_size=2)),
    "hybrid, sparse": rules(full(2), swa(5, block_size=2), retention=0),
    "mamba": rules(full(2), mamba(2)),
}


@pytest.mark.parametrize("name", POOLS)
@settings(deadline=None, max_examples=50)
@given(
    prompts=PROMPTS,
    answer=st.integers(0, 5),
    capacity_blocks=st.integers(30, 50),
    budget=st.integers(4, 20),
)
def test_one_request_at_a_time_is_what_the_scheduler_does_with_one(
    name: str, prompts: list[list[int]], answer: int, capacity_blocks: int, budget: int
) -> None:
    """Timed and sequential replay agree when no two requests overlap."""
    answers = [[7 + place] * answer for place in range(len(prompts))]
    trace = make_trace(prompts, block_size=2, answers=answers)

    replay = replay_sequential(
        trace,
        together(trace),
        capacity_blocks=capacity_blocks,
        rules=POOLS[name],
        max_num_batched_tokens=budget,
    )

    assert not replay.refused.size
    assert replay.lookups.num_cached_tokens.tolist() == _scheduled_hits(
        trace, POOLS[name], capacity_blocks, budget
    )


def _scheduled_hits(
    trace: BlockTrace, pool: PoolRules, capacity_blocks: int, budget: int
) -> list[int]:
    scheduler = Scheduler(
        pool,
        capacity_blocks + 1,
        SchedulerRules(max_num_batched_tokens=budget, max_num_seqs=1, max_model_tokens=1_000),
    )
    cached = []
    for position in range(trace.num_requests):
        num_tokens = int(trace.num_prompt_tokens[position])
        served = ServedRequest(
            number=position,
            keys=block_ids(trace, position).tolist(),
            num_prompt_tokens=num_tokens,
            num_tokens=num_tokens,
            # The last token of an answer has no KV.
            num_answer_tokens=int(trace.num_generated_tokens[position]) + 1,
        )
        scheduler.add(served)
        while scheduler.running or scheduler.waiting:
            assert scheduler.step().stuck is None
        cached.append(served.num_cached_tokens)
    return cached


@given(prompts=PROMPTS, small=st.integers(8, 20))
@settings(deadline=None)
def test_hits_never_exceed_those_of_an_endless_pool(prompts: list[list[int]], small: int) -> None:
    trace = make_trace(prompts, block_size=2)
    pool = rules(full(2))

    bounded, endless = hits(trace, pool, small), hits(trace, pool)

    assert all(some <= most for some, most in zip(bounded, endless, strict=True))
    assert endless == [
        max((_shared(prompt, seen) for seen in prompts[:place]), default=0)
        for place, prompt in enumerate(prompts)
    ]


def _shared(prompt: list[int], seen: list[int]) -> int:
    """Count the tokens of the whole blocks of 2 that agree, but for the prompt's last token."""
    count = 0
    while count + 2 <= min(len(prompt) - 1, len(seen)) and prompt[: count + 2] == seen[: count + 2]:
        count += 2
    return count


def test_replay_of_an_empty_trace_is_empty() -> None:
    trace = make_trace([], block_size=4)

    replay = replay_sequential(trace, together(trace), capacity_blocks=4, rules=rules(full(4)))

    assert isinstance(replay, SequentialReplay)
    assert replay.lookups.num_cached_tokens.tolist() == []
