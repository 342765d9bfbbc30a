"""The knee of a curve and the capacities that show its shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.core.pool import HitCurve
from prefixaudit.pool import find_knee, informative_capacities
from prefixaudit.pool.curves import capacity_for_share


def curve(hits: list[int]) -> HitCurve:
    return HitCurve(
        num_cached_blocks=np.array(hits, dtype=np.int64), flops_saved=np.empty(0, dtype=np.float64)
    )


curves = st.lists(st.integers(0, 50), max_size=300).map(
    lambda steps: curve(np.cumsum([0, *steps]).tolist())
)


def test_knee_is_where_the_slope_over_doublings_breaks() -> None:
    """Ten hits a doubling up to 16 blocks, one a doubling from there to 1024."""
    doublings = np.log2(np.arange(1, 1025))
    hits = np.where(doublings <= 4, 10 * doublings, 40 + (doublings - 4)) * 1000
    assert find_knee(curve([0, *hits.astype(int).tolist(), *[46_000] * 5])) == 16


def test_knee_of_a_cliff_is_the_first_capacity_that_holds_all() -> None:
    assert find_knee(curve([0] * 100 + [7] * 20)) == 100


def test_knee_of_hits_at_once_is_one_block() -> None:
    assert find_knee(curve([0, 5, 5, 5])) == 1


def test_curve_without_hits_has_no_knee() -> None:
    assert find_knee(curve([0, 0, 0])) is None
    assert find_knee(curve([0])) is None


@given(curves)
def test_knee_is_the_farthest_point_above_the_chord(given: HitCurve) -> None:
    """Restated point by point."""
    hits = given.num_cached_blocks.tolist()
    knee = find_knee(given)
    if hits[-1] == 0:
        assert knee is None
        return
    end = hits.index(hits[-1])
    assert knee is not None
    assert 1 <= knee <= end
    if end > 1 and hits[end] > hits[1]:

        def above(capacity: int) -> float:
            rise = (hits[capacity] - hits[1]) / (hits[end] - hits[1])
            return float(rise - np.log(capacity) / np.log(end))

        assert above(knee) == pytest.approx(max(above(c) for c in range(1, end + 1)), abs=1e-9)


@given(curves, st.sets(st.integers(0, 10_000), max_size=3))
def test_capacities_are_few_and_hold_the_ends_the_knee_and_what_was_asked(
    given: HitCurve, always: set[int]
) -> None:
    capacities = informative_capacities(given, always=always)
    knee = find_knee(given)

    assert list(capacities) == sorted(set(capacities))
    assert len(capacities) <= 60
    assert {0, *always} <= set(capacities)
    assert knee is None or knee in capacities
    assert given.at(max(capacities))[0] == given.at(None)[0]


def test_capacities_follow_a_step_that_even_spacing_would_miss() -> None:
    """All hits come between 5,000 and 5,010 of 1,000,000 blocks."""
    hits = [0] * 5000 + [*range(10)] + [10] * 1_000_000

    capacities = informative_capacities(curve(hits))

    assert set(range(5001, 5010)) <= set(capacities)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.5, 2), (0.51, 3), (1.0, 4)])
def test_capacity_for_a_share_of_the_hits(share: float, expected: int) -> None:
    assert capacity_for_share(curve([0, 3, 5, 9, 10, 10]), share) == expected
