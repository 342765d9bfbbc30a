"""Who shares which blocks, and what a fork costs. Figures worked out by hand."""

from __future__ import annotations

import pytest

from prefixaudit.errors import UsageError
from prefixaudit.pool.vllm.sharing import ForkCost, fork_cost, occupancy
from tests.pool.vllm.pools import add, full, mamba, manager, request, rules, swa


def cost(shared: int, private: int, copied: int, recomputed: int) -> ForkCost:
    return ForkCost(
        num_shared_blocks=shared,
        num_private_blocks=private,
        num_copied_blocks=copied,
        num_recomputed_tokens=recomputed,
    )


def test_blocks_are_counted_by_their_readers() -> None:
    pool = manager(rules(), 20)
    for number, keys in enumerate(([1, 2], [1, 2], [1])):
        add(pool, request(number, 9, keys))

    counted = occupancy(pool)

    # Block 1 has three readers, block 2 has two; the first two have a tail each, the third two.
    assert counted.num_blocks_by_readers == {1: 4, 2: 1, 3: 1}
    assert (counted.num_shared_blocks, counted.num_private_blocks) == (2, 4)
    assert counted.num_blocks_saved == 3
    assert counted.num_used_blocks + counted.num_free_blocks == 20


def test_free_blocks_that_can_be_hit_are_told_from_empty_ones() -> None:
    pool = manager(rules(), 20)
    first = request(0, 9, [1, 2])
    add(pool, first)
    pool.free(first)

    counted = occupancy(pool)

    assert (counted.num_cached_free_blocks, counted.num_free_blocks) == (2, 20)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "expected"),
    [
        # 2 full blocks and a tail of 1: each sample computes the tail itself.
        (9, cost(2, 4, 0, 3)),
        # A prompt of whole blocks can't be hit at its last token: the last block is private.
        (8, cost(1, 4, 0, 12)),
        (3, cost(0, 4, 0, 9)),
    ],
)
def test_each_sample_has_the_block_of_the_last_token_to_itself(
    num_prompt_tokens: int, expected: ForkCost
) -> None:
    assert fork_cost(rules(), num_prompt_tokens, 4) == expected


def test_one_sample_shares_nothing() -> None:
    assert fork_cost(rules(), 9, 1) == cost(0, 3, 0, 0)


def test_drafter_costs_a_block_more() -> None:
    assert fork_cost(rules(use_eagle=True), 13, 3) == cost(2, 6, 0, 10)


def test_window_shares_its_last_blocks() -> None:
    """Window 9 over 17 tokens: blocks 2 and 3 are hit; blocks 0 and 1 stay the first sample's."""
    assert fork_cost(rules(swa(9)), 17, 2) == cost(2, 4, 0, 1)


def test_recurrent_tail_is_copied() -> None:
    """Blocks of 8 over units of 4: 13 tokens are hit at 12, inside the second block."""
    found = fork_cost(rules(full(8), mamba(8), hash_block_size=4), 13, 2)

    # The second sample copies the tail of both groups; the first copies its state to keep it.
    assert found.num_copied_blocks == 3
    assert found.num_recomputed_tokens == 1


@pytest.mark.parametrize(("num_prompt_tokens", "num_samples"), [(0, 2), (5, 0)])
def test_fork_of_nothing_is_refused(num_prompt_tokens: int, num_samples: int) -> None:
    with pytest.raises(UsageError):
        fork_cost(rules(), num_prompt_tokens, num_samples)
