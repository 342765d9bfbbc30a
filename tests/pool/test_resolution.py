"""The range that a trace's ids leave for finer blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.pool import hits_at, replay_lru
from prefixaudit.pool.rates import hit_rates
from prefixaudit.pool.resolution import finer_block_hits
from tests.chain.prompts import build, hash_prompt, token_prompt

# The trace of a public report about mixed-up definitions, with the answers worked out there.
REPORTED = [
    hash_prompt([*range(40, 54)], 6955, arrival_s=0.0),
    hash_prompt([*range(40, 52), 90], 6472, arrival_s=3.0),
    hash_prompt([*range(40, 54)], 6955, arrival_s=5.0),
    hash_prompt([40], 512, arrival_s=9.0),
    hash_prompt([95, 40], 700, arrival_s=9.5),
]


def test_reported_trace_has_the_figures_worked_out_for_it() -> None:
    trace = build(REPORTED, block_size=16)
    shared = trace.namespaces(())
    _, lookups = replay_lru(
        trace, shared, capacity_blocks=None, min_recomputed_tokens=1, flops_by_depth=None
    )
    rates = hit_rates(trace, shared, lookups.num_cached_tokens, capacity_blocks=None)
    finer = finer_block_hits(trace, shared, block_size=16, min_recomputed_tokens=1)
    tokens = int(trace.num_prompt_tokens.sum())

    assert trace.block_size == 512
    assert lookups.num_cached_tokens.tolist() == [0, 6144, 6656, 0, 0]
    assert (rates.num_matched_ids, round(rates.of_ids, 4)) == (12 + 14 + 1, 0.6136)
    assert round(rates.of_tokens, 4) == 0.5928
    assert finer.at_least_tokens.tolist() == [0, 6144, 6944, 496, 0]
    assert finer.at_most_tokens.tolist() == [0, 6464, 6944, 496, 496]
    assert round(int(finer.at_least_tokens.sum()) / tokens, 4) == 0.6291
    assert round(int(finer.at_most_tokens.sum()) / tokens, 4) == 0.6669


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=14), st.integers(0, 1)), max_size=10),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 2),
)
def test_true_hits_of_the_finer_blocks_lie_in_the_range(
    log: list[tuple[list[int], int]], block_size: int, recomputed: int
) -> None:
    """Tokens are known here: ids of 4 are made from them, and the finer pool is replayed."""
    numbers: dict[tuple[int, ...], int] = {}
    coarse = build(
        hash_prompt(
            [
                numbers.setdefault(tuple(tokens[: start + 4]), len(numbers))
                for start in range(0, len(tokens), 4)
            ],
            len(tokens),
            block_size=4,
        )
        for tokens, _ in log
    )
    fine = build([token_prompt(tokens) for tokens, _ in log], block_size=block_size)
    namespaces = np.array([namespace for _, namespace in log], dtype=np.int32)

    found = finer_block_hits(
        coarse, namespaces, block_size=block_size, min_recomputed_tokens=recomputed
    )

    [blocks] = hits_at(fine, namespaces, [None], min_recomputed_tokens=recomputed)
    true_tokens = blocks * block_size
    if block_size == 4:
        # With the trace's own blocks, the lower end is the figure.
        assert (true_tokens == found.at_least_tokens).all()
    assert (found.at_least_tokens <= true_tokens).all()
    assert (true_tokens <= found.at_most_tokens).all()


def test_where_nobody_went_on_the_range_is_a_figure() -> None:
    trace = build([hash_prompt([1], 512), hash_prompt([1, 2], 1024)])

    found = finer_block_hits(trace, trace.namespaces(()), block_size=16, min_recomputed_tokens=1)

    assert found.at_least_tokens.tolist() == found.at_most_tokens.tolist() == [0, 512]


def test_block_size_must_divide_the_traces() -> None:
    trace = build([hash_prompt([1], 512)])

    with pytest.raises(ValueError, match="expected a divisor of the trace's 512"):
        finer_block_hits(trace, trace.namespaces(()), block_size=100, min_recomputed_tokens=1)
