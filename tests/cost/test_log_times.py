"""Seconds of a whole log."""

from __future__ import annotations

import numpy as np
import pytest

from prefixaudit.cost.flops import prefill_flops, saved_flops, total_flops
from prefixaudit.cost.hardware import find_gpu, find_tier
from prefixaudit.cost.log_times import log_times
from prefixaudit.cost.time import TimeModel
from prefixaudit.families import describe

from .golden import published_config

LLAMA = describe(published_config("llama-3.1-8b"))
MODEL = TimeModel(spec=LLAMA, gpu=find_gpu("h100-sxm"))


def test_gpu_seconds_are_flops_by_peak_and_band() -> None:
    prompt, cached = np.array([8192, 4096, 100]), np.array([4096, 0, 64])

    times = log_times(MODEL, prompt, cached, usd_per_gpu_hour=3.6)

    whole = sum(total_flops(prefill_flops(LLAMA, int(tokens), 0)) for tokens in prompt)
    spared = sum(saved_flops(LLAMA, int(tokens)) for tokens in cached)
    assert times.gpu_s_prefill == pytest.approx((whole / 989e12 / 0.75, whole / 989e12 / 0.40))
    assert times.gpu_s_saved == pytest.approx((spared / 989e12 / 0.75, spared / 989e12 / 0.40))
    assert times.usd_saved == pytest.approx(tuple(value / 1000 for value in times.gpu_s_saved))


def test_only_hits_count_as_too_short() -> None:
    """A long hit that saves, a short one that doesn't, and a miss."""
    times = log_times(MODEL, np.array([8192, 100, 100]), np.array([4096, 64, 0]))

    assert (times.num_hits, times.num_hits_too_short, times.num_hits_doubtful) == (2, 1, 0)


def test_fetched_hits_may_be_doubtful() -> None:
    """512 tokens from host memory: 12 to 15 ms and 1 to 3 ms, against 8 to 20 ms of computing."""
    times = log_times(MODEL, np.array([4096]), np.array([512]), tier=find_tier("cpu"))

    assert (times.num_hits_too_short, times.num_hits_doubtful) == (0, 1)


def test_hits_shorten_the_time_to_first_token() -> None:
    times = log_times(MODEL, np.full(100, 8192), np.full(100, 4096))

    assert times.ttft_cold is not None
    assert times.ttft_hit is not None
    assert times.ttft_hit.p50_s[0] < times.ttft_cold.p50_s[0]
    assert times.ttft_hit.p50_s[1] < times.ttft_cold.p50_s[1]
    assert times.ttft_cold.p50_s == times.ttft_cold.p99_s


def test_log_without_requests_has_no_percentiles() -> None:
    none = np.array([], dtype=np.int64)

    times = log_times(MODEL, none, none)

    assert sum(times.gpu_s_prefill) == 0
    assert times.ttft_cold is None


def test_empty_prompts_are_left_out() -> None:
    times = log_times(MODEL, np.array([0, 8192]), np.array([0, 4096]))

    assert times.num_hits == 1
    assert times.gpu_s_prefill == log_times(MODEL, np.array([8192]), np.array([0])).gpu_s_prefill
