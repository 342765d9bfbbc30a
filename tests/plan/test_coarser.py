"""A trace in larger blocks is the trace that larger blocks would have given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.errors import UsageError
from prefixaudit.plan.coarser import in_blocks_of
from prefixaudit.pool.lru import hits_at
from tests.pool.traces import make_trace


@settings(deadline=None, max_examples=150)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), max_size=24), min_size=1, max_size=12),
    factor=st.integers(1, 4),
    answers=st.lists(st.lists(st.integers(0, 1), max_size=9), min_size=12, max_size=12),
)
def test_coarser_trace_hits_what_larger_blocks_hit(
    prompts: list[list[int]], factor: int, answers: list[list[int]]
) -> None:
    answers = answers[: len(prompts)]
    fine = make_trace(prompts, block_size=2, answers=answers)
    large = make_trace(prompts, block_size=2 * factor, answers=answers)
    nobody = np.zeros(len(prompts), np.int32)
    capacities = [0, 1, 2, 3, 5, 8, None]

    coarse = in_blocks_of(fine, 2 * factor)

    assert coarse.num_blocks.tolist() == large.num_blocks.tolist()
    assert coarse.num_distinct_blocks == large.num_distinct_blocks
    np.testing.assert_array_equal(
        hits_at(coarse, nobody, capacities, min_recomputed_tokens=1),
        hits_at(large, nobody, capacities, min_recomputed_tokens=1),
    )


def test_size_that_is_no_multiple_is_refused() -> None:
    with pytest.raises(UsageError, match="multiple"):
        in_blocks_of(make_trace([[1] * 8], block_size=4), 6)
