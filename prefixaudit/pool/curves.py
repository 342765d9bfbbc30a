"""What a person wants to know of a curve of millions of capacities: its knee, and a few points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from prefixaudit.core.pool import HitCurve

_NUM_POINTS: Final = 60
_ROUNDING: Final = 1e-12


def capacity_for_share(curve: HitCurve, share: float) -> int:
    """Return the smallest capacity (blocks) with `share` (0..1) of an endless pool's hits."""
    hits = curve.num_cached_blocks
    # An integer to search for: a float would turn the whole curve into floats.
    return int(np.searchsorted(hits, np.int64(math.ceil(share * int(hits[-1])))))


def find_knee(curve: HitCurve) -> int | None:
    """Return the capacity (blocks) from which more capacity pays least, None without any hit.

    The rule: hits over the logarithm of the capacity, from 1 block to the smallest capacity that
    hits as much as an endless pool, both scaled to 0..1; the knee is the point farthest above the
    straight line between the ends. A doubling to the left of it gains more than the average
    doubling, one to the right less. A curve that never rises above the line (nothing until the
    whole working set fits) has its knee at the end.
    """
    hits = curve.num_cached_blocks
    if not int(hits[-1]):
        return None
    end = capacity_for_share(curve, 1.0)
    if end <= 1:
        return end
    start = int(hits[1])
    if start == int(hits[end]):
        return 1
    # Where hits grow evenly, their height above the line is convex in the capacity (the logarithm
    # is concave), so only the corners of the curve can be the farthest point.
    steps = np.diff(hits[: end + 1])
    corners = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    capacities = corners if len(corners) and corners[0] == 1 else np.append(1, corners)
    rise = (hits[capacities] - start) / (int(hits[end]) - start)
    above = rise - np.log(capacities) / np.log(end)
    place = int(above.argmax())
    # Rounding alone must not take the knee from the end.
    return int(capacities[place]) if above[place] > _ROUNDING else end


def informative_capacities(
    curve: HitCurve, *, always: Iterable[int] = (), num_points: int = _NUM_POINTS
) -> tuple[int, ...]:
    """Return about `num_points` capacities (blocks, ascending) that show the curve's shape.

    Half are spread evenly over the logarithm of the capacity, half over the hits; beside them
    stand no pool at all (0), the knee, the smallest capacity that hits as much as an endless one,
    and those of `always` (also where they are larger).
    """
    hits = curve.num_cached_blocks
    end = max(1, capacity_for_share(curve, 1.0))
    knee = find_knee(curve)
    fixed = {0, end, *always} | (set() if knee is None else {knee})
    half = max(2, (num_points - len(fixed)) // 2)
    by_size = np.unique(np.geomspace(1, end, half).round().astype(np.int64))
    targets = np.ceil(np.linspace(0, int(hits[-1]), half)).astype(np.int64)
    by_hits = np.searchsorted(hits, targets)
    return tuple(sorted(fixed | {int(c) for c in by_size} | {int(c) for c in by_hits}))
