"""What the timed scheduler's loop notes of a run: times of tokens, gaps between them, samples.

It runs compiled, or as plain Python (`.py_func`), like that loop; arrays as in `timed_kernels`.
"""

from __future__ import annotations

import math

from numba import njit


@njit(cache=True, nogil=True)
def note_token(request, now, times_s, gaps, gaps_per_octave):  # type: ignore[no-untyped-def]
    """Note a token of a request: its first one, or how long after the one before it came."""
    if times_s[request, 1] < 0:
        times_s[request, 1] = now
    else:
        gap_us = (now - times_s[request, 2]) * 1e6
        bin_ = 0
        if gap_us > 1.0:
            bin_ = int(gaps_per_octave * math.log2(gap_us))
        if bin_ >= len(gaps):
            bin_ = len(gaps) - 1
        gaps[bin_] += 1
    times_s[request, 2] = now


@njit(cache=True, nogil=True)
def note_sample(  # type: ignore[no-untyped-def]
    samples, row, now, num_used, num_free_keyed, num_running, num_waiting, num_shared
):
    """Note how the pool stands and who waits, in a row of `samples`."""
    samples[row, 0] = now
    samples[row, 1] = num_used
    samples[row, 2] = num_free_keyed
    samples[row, 3] = num_running
    samples[row, 4] = num_waiting
    samples[row, 5] = num_shared
