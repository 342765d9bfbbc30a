"""What a trace's partial last ids add, and what its ids leave open for finer blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.chain.partial import with_partial_blocks
from tests.chain.prompts import build, hash_prompt, paths, token_prompt


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.booleans()), max_size=12
    )
)
def test_partial_ids_become_blocks_of_their_own(log: list[tuple[list[int], bool]]) -> None:
    """Equal are exactly the equal prefixes; a partial block is never equal to a full one."""
    prompts = [
        hash_prompt(ids, 512 * len(ids) - (100 if is_partial else 0)) for ids, is_partial in log
    ]

    trace = with_partial_blocks(build(prompts))

    keys: list[object] = []
    numbers = []
    for (ids, is_partial), path in zip(log, paths(trace), strict=True):
        assert len(path) == len(ids)
        keys += [(ids[: i + 1], is_partial and i == len(ids) - 1) for i in range(len(ids))]
        numbers += path
    assert [keys.index(key) for key in keys] == [numbers.index(number) for number in numbers]
    assert trace.num_prompt_tokens.tolist() == [512 * len(ids) for ids, _ in log]
    assert trace.num_distinct_blocks == len(set(numbers))


def test_depth_and_parents_hold_for_partial_blocks() -> None:
    trace = with_partial_blocks(build([hash_prompt([1, 2, 3], 1100), hash_prompt([9], 100)]))

    assert trace.tree.parent.tolist() == [-1, 0, -1]
    assert trace.tree.depth_blocks.tolist() == [0, 2, 0]
    assert trace.tree.num_blocks.tolist() == [2, 1, 1]
    assert trace.tree.labels[:, 0].tolist() == [1, 2, 3, 9]
    assert not trace.has_partial_id.any()


def test_token_prompts_are_cut_to_full_blocks() -> None:
    trace = with_partial_blocks(build([token_prompt(range(10))], block_size=4))

    assert trace.num_prompt_tokens.tolist() == [8]
    assert trace.num_blocks.tolist() == [2]
    assert np.array_equal(paths(trace), [[0, 1]])
