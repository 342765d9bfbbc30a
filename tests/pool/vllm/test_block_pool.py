"""The free queue, keys and reference counts, worked out by hand."""

from __future__ import annotations

import pytest

from prefixaudit.pool.vllm.block_pool import NULL_BLOCK, BlockPool
from prefixaudit.pool.vllm.rules import FreeOrder


def pool(usable: int = 4, free_order: FreeOrder = "unhashed-first") -> BlockPool:
    return BlockPool(usable + 1, num_groups=1, free_order=free_order)


def keyed(of: BlockPool, *keys: int) -> list[int]:
    """Allocate one block a key and register it."""
    blocks = of.allocate(len(keys))
    for block, key in zip(blocks, keys, strict=True):
        of.register(block, key, group=0, num_tokens=0, owner=0)
    return blocks


def test_null_block_is_never_handed_out() -> None:
    of = pool(3)

    assert of.allocate(3) == [1, 2, 3]
    assert of.num_free_blocks == 0
    assert of.references[NULL_BLOCK] == 0


@pytest.mark.parametrize(
    ("free_order", "expected"),
    [
        # Block 3 has no key. Freed 3, 2, 1 behind the untouched 4.
        ("all-last", [4, 3, 2, 1]),
        # It goes to the front instead.
        ("unhashed-first", [3, 4, 2, 1]),
    ],
)
def test_freed_blocks_queue_by_the_order_of_the_release(
    free_order: FreeOrder, expected: list[int]
) -> None:
    of = pool(4, free_order)
    blocks = [*keyed(of, 10, 11), *of.allocate(1)]

    of.free(reversed(blocks))

    assert of.free_blocks() == expected


def test_unhashed_blocks_of_one_release_keep_their_order_at_the_front() -> None:
    of = pool(4)
    blocks = of.allocate(3)

    of.free(reversed(blocks))

    assert of.free_blocks() == [3, 2, 1, 4]


def test_key_outlives_the_request_until_its_block_is_handed_out() -> None:
    of = pool(2)
    of.free(reversed(keyed(of, 10, 11)))

    assert of.find(11, 0) == 2
    assert of.allocate(1) == [2]
    assert of.find(11, 0) is None
    assert of.find(10, 0) == 1
    assert of.take_evicted() == [(0, 11)]


def test_first_registered_block_answers_for_a_key_that_two_hold() -> None:
    of = pool(3)
    first, second = keyed(of, 10, 10)

    assert of.find(10, 0) == first
    of.free([first])
    of.free(of.allocate(2))
    # The spare block, then `first` were handed out; the second copy answers now.
    assert of.find(10, 0) == second


def test_evicting_one_of_two_copies_is_reported_all_the_same() -> None:
    of = pool(2)
    of.free(keyed(of, 10, 10))

    of.allocate(2)

    assert of.take_evicted() == [(0, 10), (0, 10)]


def test_touch_takes_a_free_block_out_of_the_queue() -> None:
    of = pool(3)
    blocks = keyed(of, 10, 11)
    of.free(reversed(blocks))

    of.touch([blocks[0]])

    assert of.free_blocks() == [3, blocks[1]]
    assert of.references[blocks[0]] == 1


def test_block_is_free_only_when_its_last_reader_leaves() -> None:
    of = pool(2)
    blocks = keyed(of, 10)
    of.touch(blocks)

    of.free(blocks)
    assert of.num_free_blocks == 1
    of.free(blocks)
    assert of.num_free_blocks == 2


def test_reset_needs_an_idle_pool_and_keeps_the_queue() -> None:
    of = pool(3)
    blocks = keyed(of, 10, 11)

    assert not of.reset()
    of.free(reversed(blocks))
    order = of.free_blocks()
    assert of.reset()
    assert of.free_blocks() == order
    assert of.find(10, 0) is None
    of.allocate(3)
    assert of.take_evicted() == []


def test_keys_of_different_groups_do_not_meet() -> None:
    of = BlockPool(3, num_groups=2, free_order="unhashed-first")
    (block,) = of.allocate(1)
    of.register(block, 10, group=1, num_tokens=4, owner=0)

    assert of.find(10, 0) is None
    assert of.find(10, 1) == block
    assert of.find_in_all(10, (0, 1)) is None


def test_tail_key_goes_with_its_block() -> None:
    of = pool(1)
    (block,) = keyed(of, 10)
    of.register_tail(block, 9, group=0, num_tokens=0, owner=0)
    assert of.find(9, 0) == of.find(10, 0) == block
    of.free([block])

    of.allocate(1)

    assert of.take_evicted() == [(0, 10), (0, 9)]


def test_key_of_a_longer_end_replaces_that_of_a_shorter_one() -> None:
    of = pool(1)
    (block,) = of.allocate(1)
    of.register_tail(block, 8, group=0, num_tokens=2, owner=0)

    of.register_tail(block, 9, group=0, num_tokens=3, owner=0)

    assert of.find(8, 0) is None
    assert of.find(9, 0) == block
    assert of.take_evicted() == [(0, 8)]
