"""Samples by conversation stay within their own bound of the full curve."""

from __future__ import annotations

import numpy as np
import pytest

from prefixaudit.errors import UsageError
from prefixaudit.plan.sampling import sample_of, sampled_rates
from prefixaudit.pool.lru import replay_lru
from tests.plan.mooncake import mooncake
from tests.pool.traces import make_trace

CAPACITIES = (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_percent_lie_within_the_stated_bound(name: str, seed: int) -> None:
    trace = mooncake(name)
    nobody = np.zeros(trace.num_requests, np.int32)
    curve, _ = replay_lru(
        trace,
        nobody,
        capacity_blocks=None,
        min_recomputed_tokens=1,
        flops_by_depth=None,
        with_donors=False,
    )
    tokens = int(trace.num_prompt_tokens.sum())

    sample = sample_of(trace, nobody, 0.1, seed=seed)
    rates = sampled_rates(sample, nobody[sample.positions], CAPACITIES)

    assert 0.02 < len(sample.positions) / trace.num_requests < 0.2
    for rate in rates:
        full = curve.at(rate.capacity_blocks)[0] * 512 / tokens
        assert rate.bound is not None
        assert rate.bound < 0.2
        assert abs(rate.hit_rate - full) <= rate.bound


def test_conversations_are_drawn_whole() -> None:
    """Each conversation begins with blocks of its own, so all of its turns are in or out."""
    prompts = [[c % 50, c // 50] * (2 + turn) + [9] for turn in range(4) for c in range(300)]
    trace = make_trace(prompts, block_size=2)

    sample = sample_of(trace, np.zeros(len(prompts), np.int32), 0.3)

    drawn = np.bincount(sample.positions % 300, minlength=300)
    assert set(drawn.tolist()) == {0, 4}


def test_all_of_the_log_is_exact() -> None:
    trace = make_trace([[n % 7, n % 3] * 6 for n in range(60)], block_size=2)
    nobody = np.zeros(60, np.int32)
    curve, _ = replay_lru(
        trace, nobody, capacity_blocks=None, min_recomputed_tokens=1, flops_by_depth=None
    )

    rates = sampled_rates(sample_of(trace, nobody, 1.0), nobody, [3, 10, 50])

    tokens = int(trace.num_prompt_tokens.sum())
    assert [rate.hit_rate for rate in rates] == pytest.approx(
        [curve.at(capacity)[0] * 2 / tokens for capacity in (3, 10, 50)]
    )
    assert [rate.bound for rate in rates] == [0.0, 0.0, 0.0]


def test_few_conversations_have_no_bound() -> None:
    trace = make_trace([[n, n, n, n] for n in range(30)], block_size=2)
    nobody = np.zeros(30, np.int32)
    sample = sample_of(trace, nobody, 0.2)

    [rate] = sampled_rates(sample, nobody[sample.positions], [4])

    assert rate.bound is None


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_share_out_of_range_is_refused(share: float) -> None:
    trace = make_trace([[1, 2]], block_size=1)

    with pytest.raises(UsageError, match="sample"):
        sample_of(trace, np.zeros(1, np.int32), share)
