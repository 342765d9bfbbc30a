"""The kinds of KV groups: what makes a hit, what is freed, what is kept. Worked out by hand."""

from __future__ import annotations

import pytest

from prefixaudit.errors import ConfigurationError
from tests.pool.vllm.pools import (
    add,
    chunked,
    compute,
    full,
    mamba,
    manager,
    request,
    rules,
    swa,
)

PROMPT = list(range(1, 9))
"""Keys of 8 blocks of 4 tokens."""


# Sliding window


def test_window_needs_its_own_blocks_only() -> None:
    """A window of 9 needs ceil(8 / 4) = 2 blocks in a row, wherever they are."""
    pool = manager(rules(swa(9)), 40)
    first = request(0, 32, PROMPT)
    add(pool, first)

    hit = pool.look_up(request(1, 33, PROMPT))

    assert hit.num_tokens == 32
    assert [block != 0 for block in hit.blocks[0]] == [False] * 6 + [True] * 2


def test_window_is_searched_from_the_right() -> None:
    pool = manager(rules(swa(9)), 40)
    add(pool, request(0, 12, PROMPT[:3]))

    # Blocks 0 to 2 are cached; 1 and 2 are a window that ends at token 12.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 12


def test_fewer_blocks_than_a_window_are_enough_at_the_start() -> None:
    pool = manager(rules(swa(33)), 40)
    add(pool, request(0, 8, PROMPT[:2]))

    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 8


def test_blocks_that_leave_the_window_are_freed_while_the_request_runs() -> None:
    pool = manager(rules(swa(8)), 10)
    running = request(0, 8, PROMPT)
    add(pool, running)
    assert pool.num_free_blocks == 8

    # Token 11 sees tokens 4 to 11: 11 computed tokens skip 11 - 8 + 1 = 4, which is block 0.
    compute(pool, running, 3)
    assert pool.num_free_blocks == 7
    compute(pool, running, 1)
    assert pool.num_free_blocks == 8
    assert pool.tables(running)[0][0] == 0


def test_freed_window_block_can_still_be_hit() -> None:
    pool = manager(rules(swa(8)), 10)
    running = request(0, 8, PROMPT)
    add(pool, running)
    compute(pool, running, 9)

    assert pool.look_up(request(1, 6, PROMPT)).num_tokens == 4


def test_eagle_needs_one_more_block_of_the_window() -> None:
    pool = manager(rules(swa(9), use_eagle=True), 40)
    add(pool, request(0, 16, PROMPT[:4]))

    # Blocks 1 to 3 are matched, the last is dropped.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 12


# Chunked local


def test_what_lies_before_the_chunk_counts_as_hit() -> None:
    """With chunks of 16 a prompt of 33 is looked up from token 32 on: nothing is needed."""
    pool = manager(rules(chunked(16)), 40)

    assert pool.look_up(request(0, 33, PROMPT)).num_tokens == 32
    # At most 31 tokens may be hit here: 16 lie before the chunk, blocks 4 to 6 are missing.
    assert pool.look_up(request(1, 32, PROMPT)).num_tokens == 16


def test_full_attention_bounds_the_chunks() -> None:
    pool = manager(rules(full(), chunked(16)), 40)
    assert add(pool, request(0, 24, PROMPT)) == 0

    # Full attention holds 24 tokens; the chunk that starts at 16 has its blocks 4 and 5.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 24


# Several groups


def test_shortest_group_decides() -> None:
    """The window's blocks of the short prompt are gone, so the full blocks alone are no hit."""
    pool = manager(rules(full(), swa(5)), 8)
    first = request(0, 16, PROMPT[:4])
    add(pool, first)
    pool.free(first)
    # Four blocks of each group: the full ones were freed first, so they stand first in the queue.
    pool.pool.forget(5)
    pool.pool.forget(6)
    pool.pool.forget(7)
    pool.pool.forget(8)

    hit = pool.look_up(request(1, 17, PROMPT))
    assert hit.num_tokens == 0
    assert hit.num_missed_tokens == 16


def test_hit_is_a_multiple_of_the_larger_block() -> None:
    pool = manager(rules(full(8), swa(9, block_size=4)), 60)
    add(pool, request(0, 28, PROMPT))

    # 28 tokens have 3 full blocks of 8; the window has blocks up to 24 as well.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 24


@pytest.mark.parametrize(("version", "expected"), [("0.23.0", (1, 2)), ("0.24.0", 2)])
def test_key_of_a_block_of_two_units(version: str, expected: object) -> None:
    pool = manager(rules(full(8), swa(9, block_size=4), version=version), 60)
    group = pool.coordinator.groups[0]

    assert group.block_key(PROMPT, 0) == expected


def test_equal_groups_are_hit_together() -> None:
    pool = manager(rules(full(), full(), swa(9)), 60)
    add(pool, request(0, 16, PROMPT))
    assert pool.look_up(request(1, 17, PROMPT)).num_tokens == 16
    (second_of_both,) = {pool.tables(request(0, 16))[1][1]}

    pool.pool.forget(second_of_both)

    assert pool.look_up(request(1, 17, PROMPT)).num_tokens == 4


# Retention


def test_dense_retention_keeps_every_block_of_the_window() -> None:
    pool = manager(rules(full(), swa(9), retention=None), 60)
    add(pool, request(0, 33, PROMPT))

    assert pool.look_up(request(1, 17, [*PROMPT[:4], 99])).num_tokens == 16


def test_sparse_retention_keeps_the_tail_of_the_prompt_only() -> None:
    pool = manager(rules(full(), swa(9), retention=0), 60)
    add(pool, request(0, 33, PROMPT))

    # The same prompt is hit at its end; one that leaves it after 16 tokens is not.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 32
    assert pool.look_up(request(2, 17, [*PROMPT[:4], 99])).num_tokens == 0


def test_second_request_that_misses_a_shared_prefix_pins_it() -> None:
    pool = manager(rules(full(), swa(9), retention=0), 90)
    add(pool, request(0, 33, PROMPT))
    second = request(1, 33, PROMPT[:4])
    assert add(pool, second) == 0
    assert second.shared_prefix_tokens == 16

    assert pool.look_up(request(2, 33, PROMPT[:4])).num_tokens == 16


def test_interval_keeps_a_tail_a_segment() -> None:
    """An interval of 16 keeps 2 blocks before each multiple of 16 tokens."""
    pool = manager(rules(full(), swa(9), retention=16), 60)
    add(pool, request(0, 38, [*PROMPT, 9]))

    assert pool.look_up(request(1, 20, PROMPT)).num_tokens == 16
    # A prompt that shares 12 tokens ends inside the first segment.
    assert pool.look_up(request(2, 14, [*PROMPT[:3], 99])).num_tokens == 0


# Mamba


def test_state_is_kept_where_a_chunk_ended() -> None:
    pool = manager(rules(full(), mamba()), 60)
    running = request(0, 15, PROMPT)
    add(pool, running, first=8)
    compute(pool, running, 7)
    pool.new_step()

    # Chunks ended at 8 and at 15: there is one state at a block's end.
    assert pool.look_up(request(1, 33, PROMPT)).num_tokens == 8


def test_state_of_this_step_is_waited_for() -> None:
    pool = manager(rules(full(), mamba()), 60)
    add(pool, request(0, 9, PROMPT), first=8)
    waiting = request(1, 9, PROMPT)

    hit = pool.look_up(waiting)
    assert hit.num_tokens == 8
    assert not pool.allocate(waiting, 1, hit=hit)
    pool.new_step()
    assert pool.allocate(waiting, 1, hit=hit)


def test_request_holds_one_running_state() -> None:
    pool = manager(rules(full(), mamba()), 60)
    running = request(0, 24, PROMPT)
    add(pool, running, first=8)
    for _ in range(2):
        pool.new_step()
        compute(pool, running, 8)

    # 6 full blocks, and the states at 16 (copied from in the last step) and 24.
    assert [block != 0 for block in pool.tables(running)[1]] == [False] * 3 + [True, False, True]
    assert pool.num_free_blocks == 60 - 6 - 2


def test_hit_inside_a_block_copies_it() -> None:
    """Blocks of 8 over units of 4: a prompt of 13 leaves a tail at 12, hit by the next one."""
    pool = manager(rules(full(8), mamba(8), hash_block_size=4), 60)
    first = request(0, 13, PROMPT)
    add(pool, first, first=8)
    pool.new_step()
    compute(pool, first, 4)
    pool.new_step()
    compute(pool, first, 1)
    pool.new_step()
    second = request(1, 30, [1, 2, 3, 99])

    hit = pool.look_up(second)
    assert hit.num_tokens == 12
    assert pool.allocate(second, 4, hit=hit)
    copies = pool.finish_copies()
    # The tail of both groups.
    assert len(copies) == 2
    assert pool.tables(second)[0][0] == pool.tables(first)[0][0]
    assert pool.tables(second)[0][1] != pool.tables(first)[0][1]


# What vLLM can't run


@pytest.mark.parametrize(
    "broken",
    [
        lambda: rules(full(6), hash_block_size=4),
        lambda: rules(full(8), chunked(16, block_size=4)),
        lambda: rules(swa(0)),
        lambda: rules(full(), swa(9), retention=6),
        lambda: rules(full(), chunked(16), use_eagle=True),
        lambda: rules(full(0)),
    ],
)
def test_impossible_pool_is_refused(broken: object) -> None:
    assert callable(broken)

    with pytest.raises(ConfigurationError):
        broken()
