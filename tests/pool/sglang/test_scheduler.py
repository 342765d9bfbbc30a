"""The order of operations around the tree, by laws that hold whatever the requests are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.core.trace import Int64Array
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.sglang.rules import rules_of
from prefixaudit.pool.sglang.scheduler import Running, SglangPool


def new_pool(*, capacity_tokens: int, block_size: int, version: str = "0.5.23") -> SglangPool:
    return SglangPool(
        capacity_tokens=capacity_tokens,
        block_size=block_size,
        policy=POLICIES["lru"],
        rules=rules_of(version),
    )


def run_of(*ids: int) -> Int64Array:
    return np.asarray(ids, dtype=np.int64)


def test_request_of_whole_pages_recomputes_its_last_page() -> None:
    pool = new_pool(capacity_tokens=64, block_size=4)
    _, first = pool.add(run_of(1, 2), 8, donor=0)
    assert first is not None
    pool.free(first, run_of(1, 2))

    hit, second = pool.add(run_of(1, 2), 8, donor=1)
    assert second is not None

    assert hit == 4
    # The page computed again was a duplicate: it went back at once.
    assert pool.num_free_tokens == 64 - 8


def test_two_running_copies_keep_one() -> None:
    pool = new_pool(capacity_tokens=64, block_size=4)
    _, first = pool.add(run_of(1, 2), 9, donor=0, first_tokens=4)
    _, second = pool.add(run_of(1, 2), 9, donor=1, reads_cache=False)
    assert first is not None
    assert second is not None

    # [1] once, [2] once and a tail page of the second: [1] of the second went back.
    assert pool.num_free_tokens == 64 - 12

    assert pool.prefill(first, 5)

    # The first computed [2] again, which went back, and has a tail page of its own.
    assert pool.num_free_tokens == 64 - 16


def test_paged_prompt_asks_for_one_page_more_than_it_takes() -> None:
    pool = new_pool(capacity_tokens=12, block_size=4)
    _, first = pool.add(run_of(1), 4, donor=0)
    assert first is not None
    pool.free(first, run_of(1))

    # 8 tokens are free and 8 are taken, but 12 are asked for: [1] is evicted.
    _, second = pool.add(run_of(2, 3), 8, donor=1)

    assert second is not None
    assert pool.num_evicted_tokens == 4


def test_decode_asks_for_a_page_even_where_its_page_has_room() -> None:
    pool = new_pool(capacity_tokens=8, block_size=4)
    _, first = pool.add(run_of(1), 4, donor=0)
    assert first is not None
    pool.free(first, run_of(1))
    _, second = pool.add(run_of(), 2, donor=1)
    assert second is not None

    assert pool.extend(second, 1) == 1
    assert pool.num_evicted_tokens == 4


def test_request_without_room_gives_back_what_is_its_own() -> None:
    pool = new_pool(capacity_tokens=8, block_size=4)
    _, first = pool.add(run_of(1), 6, donor=0)
    assert first is not None
    assert pool.extend(first, 3) == 2

    pool.abort(first)

    assert pool.num_evictable_tokens == 4
    assert pool.num_free_tokens == 4


@given(
    block_size=st.integers(1, 3),
    capacity_tokens=st.integers(0, 40),
    version=st.sampled_from(["0.5.9", "0.5.23"]),
    actions=st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "prefill", "decode", "free", "abort"]),
            st.integers(0, 3),
            st.integers(1, 12),
        ),
        max_size=40,
    ),
)
def test_every_slot_is_free_or_stored_or_held(
    block_size: int,
    capacity_tokens: int,
    version: str,
    actions: list[tuple[str, int, int]],
) -> None:
    pool = new_pool(capacity_tokens=capacity_tokens, block_size=block_size, version=version)
    running: list[Running] = []
    for donor, (kind, branch, length) in enumerate(actions):
        # The tokens of a branch part from those of the others after 4.
        ids = np.asarray(
            [branch * 1000 + end if end > 4 else end for end in range(block_size, 100, block_size)],
            dtype=np.int64,
        )
        if kind == "add":
            _, request = pool.add(
                ids[: length // block_size], length, donor=donor, first_tokens=1 + branch
            )
            running += [] if request is None else [request]
        elif running:
            request = running[branch % len(running)]
            path = np.concatenate([request.blocks, ids[len(request.blocks) :] + 10_000 * donor])
            if kind == "prefill" and pool.prefill(request, length):
                continue
            if kind == "decode":
                if request.num_computed_tokens == request.num_prompt_tokens:
                    pool.extend(request, length)
                continue
            if kind == "free":
                pool.free(request, path)
            elif kind == "abort":
                pool.abort(request)
            running.remove(request)

        held = sum(
            -(-r.num_computed_tokens // block_size) * block_size - r.num_inserted_tokens
            for r in running
        )
        stored = pool.tree.num_blocks * block_size
        assert pool.num_free_tokens + stored + held == capacity_tokens // block_size * block_size
        assert pool.num_free_tokens >= 0
        assert running or pool.num_evictable_tokens == stored


# One request of two chunks and an answer, page 1: insertions of 1, 2 and 4 blocks. All three pass
# the first node; the first of them is an unfinished chunk.
@pytest.mark.parametrize(
    ("version", "first", "answer"),
    [("0.5.9", 0, 0), ("0.5.10", 2, 1), ("0.5.21", 2, 1), ("0.5.22", 1, 1), ("0.5.23", 1, 1)],
)
def test_what_a_node_counts_by_release(version: str, first: int, answer: int) -> None:
    pool = new_pool(capacity_tokens=8, block_size=1, version=version)
    _, request = pool.add(run_of(1, 2), 2, donor=0, first_tokens=1)
    assert request is not None
    assert pool.prefill(request, 1)
    assert pool.extend(request, 2) == 2
    pool.free(request, run_of(1, 2, 3, 4))

    counts = [node.num_hits for node in pool.tree.match(0, run_of(1, 2, 3, 4))[0].path()]

    assert (counts[-1], counts[0]) == (first, answer)


@pytest.mark.parametrize(("version", "priorities"), [("0.5.19", [5, 5]), ("0.5.20", [5, 6])])
def test_answer_goes_before_its_prompt_from_0_5_20(version: str, priorities: list[int]) -> None:
    pool = new_pool(capacity_tokens=8, block_size=1, version=version)
    _, request = pool.add(run_of(1, 2), 2, donor=0, priority=5)
    assert request is not None
    assert pool.extend(request, 1) == 1
    pool.free(request, run_of(1, 2, 3))

    path = pool.tree.match(0, run_of(1, 2, 3))[0].path()

    assert [node.priority for node in path] == priorities


def test_reset_needs_an_idle_pool() -> None:
    pool = new_pool(capacity_tokens=8, block_size=4)
    _, request = pool.add(run_of(1), 4, donor=0)
    assert request is not None

    assert not pool.reset()

    pool.free(request, run_of(1))

    assert pool.reset()
    assert pool.num_free_tokens == 8
    assert pool.add(run_of(1), 5, donor=1)[0] == 0
