"""Cuts token sequences where their content says so, so that moved text gives the same chunks.

A place is a cut where the mixed hash of its last four tokens is the smallest of its neighbourhood:
chunks have 9 tokens or more, 17 on average, and an insertion changes only those around it. A
chunk's hash is a polynomial modulo 2**64 over its tokens; it proposes, and tokens are compared
before anything is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.request import TokenArray
from prefixaudit.core.trace import Int64Array

UInt64Array: TypeAlias = NDArray[np.uint64]

_REACH: Final = 8
_BASE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_MIX: Final = np.uint64(0xD1342543DE82EF95)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Chunks:
    """starts int64 [chunks], ends int64 [chunks], hashes uint64 [chunks]."""

    starts: Int64Array
    ends: Int64Array
    hashes: UInt64Array


class Chunker:
    """Cuts and hashes; keeps the powers it needs."""

    def __init__(self) -> None:
        self._powers = np.ones(1, dtype=np.uint64)
        self._inverses = np.ones(1, dtype=np.uint64)

    def chunks(self, tokens: TokenArray) -> Chunks:
        """Return the chunks of a prompt; they cover it from its first token to its last."""
        length = len(tokens)
        if not length:
            empty = np.empty(0, dtype=np.int64)
            return Chunks(empty, empty, np.empty(0, dtype=np.uint64))
        self._grow(length + 1)
        with np.errstate(over="ignore"):
            mixed = (tokens.astype(np.uint64) + np.uint64(1)) * _MIX
            mixed ^= mixed >> _HALF
            mixed *= np.uint64(_BASE)
            cuts = _cuts(mixed)
            edges = np.concatenate(([0], cuts, [length])).astype(np.int64)
            sums = np.zeros(length + 1, dtype=np.uint64)
            np.cumsum(mixed * self._powers[:length], out=sums[1:])
            starts, ends = edges[:-1], edges[1:]
            hashes = (sums[ends] - sums[starts]) * self._inverses[starts]
            hashes += (ends - starts).astype(np.uint64)
        return Chunks(starts, ends, hashes)

    def _grow(self, length: int) -> None:
        if length <= len(self._powers):
            return
        size = 1 << length.bit_length()
        with np.errstate(over="ignore"):
            self._powers = _powers(_BASE, size)
            self._inverses = _powers(_INVERSE, size)


def _powers(base: int, size: int) -> UInt64Array:
    powers = np.full(size, np.uint64(base), dtype=np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _cuts(mixed: UInt64Array) -> Int64Array:
    """Return the places, ascending, where a chunk ends and the next one begins."""
    if len(mixed) <= 2 * _REACH + 4:
        return np.empty(0, dtype=np.int64)
    window = mixed[3:] + mixed[2:-1] * np.uint64(3) + mixed[1:-2] * np.uint64(9)
    window += mixed[:-3] * np.uint64(27)
    window ^= window >> _HALF
    window *= _MIX
    # The smallest of 17: of 2, 4, 8, 16 by doubling, then two that overlap.
    lowest = window
    for step in (1, 2, 4, 8):
        lowest = np.minimum(lowest[:-step], lowest[step:])
    lowest = np.minimum(lowest[:-1], lowest[1:])
    is_lowest = window[_REACH : _REACH + len(lowest)] == lowest
    found = np.flatnonzero(is_lowest)
    if len(found) > 1:
        # Equal neighbours (runs of one token) are all smallest: keep the first of each.
        kept = [int(found[0])]
        if (np.diff(found) <= _REACH).any():
            for place in found[1:].tolist():
                if place - kept[-1] > _REACH:
                    kept.append(place)
            found = np.array(kept)
    return found.astype(np.int64) + _REACH + 4
