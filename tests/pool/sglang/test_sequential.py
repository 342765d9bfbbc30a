"""A trace through SGLang's pool: figures worked out by hand, and an endless pool by search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.pool.sglang.rules import namespace_key, rules_of
from prefixaudit.pool.sglang.sequential import replay_sequential
from tests.pool.traces import make_trace

NOW = rules_of("0.5.23")


def test_generated_tokens_are_hit_by_the_next_turn() -> None:
    trace = make_trace([[1, 2, 3], [1, 2, 3, 4, 5, 6]], block_size=1, answers=[[4, 5], []])

    replay = replay_sequential(
        trace, np.zeros(2, np.int32), capacity_tokens=20, policy="lru", rules=NOW
    )

    assert replay.lookups.num_cached_tokens.tolist() == [0, 5]


def test_donors_are_the_requests_that_stored_each_part() -> None:
    trace = make_trace([[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]], block_size=1)

    lookups = replay_sequential(
        trace, np.zeros(3, np.int32), capacity_tokens=20, policy="lru", rules=NOW
    ).lookups

    # The last one is served tokens 0 and 1 by the first request, 2 and 3 by the second.
    assert lookups.num_cached_tokens.tolist() == [0, 2, 4]
    assert lookups.donor_offsets.tolist() == [0, 0, 1, 3]
    assert lookups.donors.tolist() == [0, 0, 1]
    assert lookups.donor_num_tokens.tolist() == [2, 2, 2]


def test_need_evicts_more_than_shortfall() -> None:
    """12 slots hold three prompts of 4; a fourth of 4 finds 0 free, a fifth of 6 finds 0 free.

    A prompt of 5 after one of 3 that left 1 free: `need` asks for 5, `shortfall` for 4.
    """
    prompts = [[1] * 4, [2] * 4, [3] * 3, [4] * 5, [2] * 4 + [9]]
    trace = make_trace(prompts, block_size=1)
    namespaces = np.zeros(5, np.int32)

    hits = {
        version: replay_sequential(
            trace, namespaces, capacity_tokens=12, policy="lru", rules=rules_of(version)
        ).lookups.num_cached_tokens.tolist()
        for version in ("0.5.16", "0.5.17")
    }

    # 1 slot is free when [4] * 5 comes. Needing 5 evicts [1] and [2]; missing 4 only [1].
    assert hits == {"0.5.16": [0, 0, 0, 0, 0], "0.5.17": [0, 0, 0, 0, 4]}


def test_prompt_larger_than_the_pool_is_refused_and_evicts_nothing() -> None:
    trace = make_trace([[1, 2, 3], list(range(10, 30)), [1, 2, 3, 4]], block_size=1)

    replay = replay_sequential(
        trace, np.zeros(3, np.int32), capacity_tokens=8, policy="lru", rules=NOW
    )

    assert replay.num_refused == 1
    assert replay.num_evicted_tokens == 0
    assert replay.lookups.num_cached_tokens.tolist() == [0, 0, 3]


def test_answer_without_room_is_cut() -> None:
    trace = make_trace([[1, 2, 3]], block_size=1, answers=[[4, 5, 6]])

    replay = replay_sequential(
        trace, np.zeros(1, np.int32), capacity_tokens=4, policy="lru", rules=NOW
    )

    assert replay.num_cut_answers == 1


def test_request_that_does_not_read_the_cache_misses_and_is_stored() -> None:
    trace = make_trace([[1, 2, 3]] * 3, block_size=1, reads_cache=[True, False, True])

    replay = replay_sequential(
        trace, np.zeros(3, np.int32), capacity_tokens=20, policy="lru", rules=NOW
    )

    assert replay.lookups.num_cached_tokens.tolist() == [0, 0, 2]


def test_salt_and_extra_key_are_concatenated_up_to_0_5_17() -> None:
    def keys(version: str) -> set[tuple[str, ...]]:
        rules = rules_of(version)
        return {
            namespace_key(rules, cache_salt="a", extra_key="bc"),
            namespace_key(rules, cache_salt="ab", extra_key="c"),
        }

    assert len(keys("0.5.17")) == 1
    assert len(keys("0.5.18")) == 2


PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=12)


@given(
    prompts=PROMPTS, block_size=st.integers(1, 3), policy=st.sampled_from(["lru", "fifo", "mru"])
)
def test_endless_pool_hits_the_longest_prefix_seen_before(
    prompts: list[list[int]], block_size: int, policy: str
) -> None:
    trace = make_trace(prompts, block_size=block_size)

    lookups = replay_sequential(
        trace, np.zeros(len(prompts), np.int32), capacity_tokens=None, policy=policy, rules=NOW
    ).lookups

    expected = [
        max((_shared_blocks(prompt, seen, block_size) for seen in prompts[:place]), default=0)
        for place, prompt in enumerate(prompts)
    ]
    assert (lookups.num_cached_tokens // block_size).tolist() == expected


def _shared_blocks(prompt: list[int], seen: list[int], block_size: int) -> int:
    """Count the whole blocks that agree, quadratically; the last token is always computed."""
    count = 0
    while (count + 1) * block_size <= min(
        len(prompt) - 1, len(seen) // block_size * block_size
    ) and prompt[: (count + 1) * block_size] == seen[: (count + 1) * block_size]:
        count += 1
    return count
