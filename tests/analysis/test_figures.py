"""Percentiles and histograms of hit lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.analysis.figures import hit_lengths


def test_percentiles_are_lengths_that_occur() -> None:
    """Nearest rank of 10, 20, … 1,000: the 50th, the 90th and the 99th."""
    lengths = hit_lengths(np.arange(10, 1010, 10), 10)

    assert lengths is not None
    assert (lengths.p50, lengths.p90, lengths.p99, lengths.max) == (500, 900, 990, 1000)


def test_no_requests_have_no_lengths() -> None:
    assert hit_lengths(np.empty(0, dtype=np.int64), 16) is None


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.sampled_from([1, 16, 512]))
def test_histogram_counts_every_request_once(blocks: list[int], block_size: int) -> None:
    values = np.array(blocks, dtype=np.int64) * block_size

    lengths = hit_lengths(values, block_size)

    assert lengths is not None
    starts = [first for first, _ in lengths.histogram]
    assert starts == sorted(set(starts))
    assert sum(count for _, count in lengths.histogram) == len(blocks)
    for place, (first, count) in enumerate(lengths.histogram):
        end = starts[place + 1] if place + 1 < len(starts) else max(values) + 1
        assert count == sum(first <= value < end for value in values)


@pytest.mark.parametrize("percent", [50, 90, 99])
@given(values=st.lists(st.integers(0, 1000), min_size=1, max_size=80))
def test_percentile_is_the_smallest_that_enough_do_not_exceed(
    percent: int, values: list[int]
) -> None:
    lengths = hit_lengths(np.array(values, dtype=np.int64), 1)

    assert lengths is not None
    found = {50: lengths.p50, 90: lengths.p90, 99: lengths.p99}[percent]
    expected = min(
        value
        for value in values
        if 100 * sum(other <= value for other in values) >= percent * len(values)
    )
    assert found == expected
