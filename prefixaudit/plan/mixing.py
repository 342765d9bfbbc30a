"""Spreads numbers evenly over 64 bits, the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-spread 64-bit values (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        spread = values + np.uint64(0x9E3779B97F4A7C15)
        spread = (spread ^ (spread >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(spread ^ (spread >> np.uint64(31)))
