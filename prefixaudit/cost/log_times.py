"""Seconds of a whole log: GPU time at saturation, times to first token, hits too short to pay.

Two figures that are not one: in full batches every FLOP that a hit spares is GPU time for others;
a lone request gains only what its own time to first token shrinks by, and nothing where reading the
weights takes the time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.times import LogTimes, TimePercentiles
from prefixaudit.core.trace import Float64Array
from prefixaudit.cost.flops import saved_flops
from prefixaudit.cost.hardware import Tier
from prefixaudit.cost.savings import hit_times
from prefixaudit.cost.time import Seconds, TimeModel

PERCENTILES: Final = (50, 90, 99)


def log_times(
    model: TimeModel,
    num_prompt_tokens: NDArray[np.integer],
    num_cached_tokens: NDArray[np.integer],
    *,
    tier: Tier | None = None,
    block_size: int = 16,
    usd_per_gpu_hour: float | None = None,
) -> LogTimes:
    """Return the times of a log: int64 [requests] of prompt and cached tokens.

    Empty prompts cost nothing and are left out. At least one token of each prompt is computed.
    """
    has_tokens = np.asarray(num_prompt_tokens) > 0
    prompt = np.asarray(num_prompt_tokens, dtype=np.int64)[has_tokens]
    cached = np.minimum(np.asarray(num_cached_tokens, dtype=np.int64)[has_tokens], prompt - 1)
    flops = float(model.flops(prompt, np.zeros_like(prompt)).sum())
    spared = float(
        saved_flops(model.spec, cached, last_position_only=model.last_position_only).sum()
    )
    gpu_saved = model.gpu_s_at_saturation(spared)
    usd = None
    if usd_per_gpu_hour is not None:
        usd = (gpu_saved[0] * usd_per_gpu_hour / 3600, gpu_saved[1] * usd_per_gpu_hour / 3600)
    times = hit_times(model, prompt, cached, tier=tier, block_size=block_size)
    is_hit = cached > 0
    return LogTimes(
        gpu_s_prefill=model.gpu_s_at_saturation(flops),
        gpu_s_saved=gpu_saved,
        usd_saved=usd,
        ttft_cold=_percentiles(times.ttft_cold),
        ttft_hit=_percentiles(times.ttft_hit),
        num_hits=int(np.count_nonzero(is_hit)),
        num_hits_too_short=int(np.count_nonzero(is_hit & (times.saved.hi <= 0))),
        num_hits_doubtful=int(
            np.count_nonzero(is_hit & (times.saved.hi > 0) & (times.saved.lo <= 0))
        ),
        assumptions=model.assumptions,
    )


def _percentiles(seconds: Seconds) -> TimePercentiles | None:
    if not seconds.lo.size:
        return None
    lo, hi = (_of(side) for side in (seconds.lo, seconds.hi))
    return TimePercentiles(p50_s=(lo[0], hi[0]), p90_s=(lo[1], hi[1]), p99_s=(lo[2], hi[2]))


def _of(side: Float64Array) -> list[float]:
    return [float(value) for value in np.percentile(side, PERCENTILES, method="inverted_cdf")]
