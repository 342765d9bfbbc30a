"""The shape of a curve in words: cliffs, and where a pool stands on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from prefixaudit.core.pool import HitCurve

# A cliff: so much of all prompt tokens is gained by so little more room.
_GAIN: Final = 0.10
_GROWTH: Final = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """A stretch of the curve, from one capacity (blocks) to another, in which hits leap.

    hit_rate_below, hit_rate_above  token hit rates (0..1) at its two ends
    """

    from_blocks: int
    to_blocks: int
    hit_rate_below: float
    hit_rate_above: float


def find_cliffs(curve: HitCurve, *, block_size: int, num_prompt_tokens: int) -> tuple[Cliff, ...]:
    """Return the stretches where a tenth more room gains 10 points of hit rate or more.

    Steep stretches that touch are one cliff, cut to where hits really grow. One of the first blocks
    of a pool can't be a cliff: below 10 blocks a tenth is less than a block.
    """
    hits = curve.num_cached_blocks
    if not num_prompt_tokens or len(hits) < 2:
        return ()
    least = _GAIN * num_prompt_tokens / block_size
    # The curve only changes where it grows; steepness is looked at from the points before that.
    starts = np.flatnonzero(np.diff(hits)) if len(hits) < 2_000_000 else _thinned(hits)
    ends = np.minimum(np.maximum(starts + 1, (starts * _GROWTH).astype(np.int64)), len(hits) - 1)
    steep = hits[ends] - hits[starts] >= least
    cliffs: list[Cliff] = []
    begin = end = -1
    for start, stop in zip(starts[steep].tolist(), ends[steep].tolist(), strict=True):
        if start > end and begin >= 0:
            cliffs.append(_cliff(curve, begin, end, block_size / num_prompt_tokens))
            begin = -1
        if begin < 0:
            begin = start
        end = max(end, stop)
    if begin >= 0:
        cliffs.append(_cliff(curve, begin, end, block_size / num_prompt_tokens))
    return tuple(cliffs)


def _thinned(hits: np.ndarray) -> np.ndarray:
    """Return where the curve of a very large pool is looked at: at steps of a thousandth."""
    places = np.unique(np.geomspace(1, len(hits) - 1, 20_000).astype(np.int64))
    return places[np.diff(hits[places], append=hits[-1]) > 0]


def _cliff(curve: HitCurve, begin: int, end: int, share: float) -> Cliff:
    hits = curve.num_cached_blocks
    # Cut to the growth itself.
    end = int(np.searchsorted(hits, hits[end]))
    return Cliff(
        from_blocks=begin,
        to_blocks=end,
        hit_rate_below=float(hits[begin] * share),
        hit_rate_above=float(hits[end] * share),
    )
