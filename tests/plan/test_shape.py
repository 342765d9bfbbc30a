"""Cliffs of the curve."""

from __future__ import annotations

import numpy as np

from prefixaudit.plan.shape import find_cliffs
from prefixaudit.pool.lru import replay_lru
from tests.pool.traces import make_trace


def cyclic(num_prompts: int, num_rounds: int) -> list[list[int]]:
    """Prompts of 4 blocks of 2 tokens and a token, used in turn."""
    return [[prompt, prompt] * 4 + [9] for _ in range(num_rounds) for prompt in range(num_prompts)]


def test_cyclic_working_set_is_a_cliff() -> None:
    """30 prompts of 4 blocks in turn: nothing hits below 120 blocks but shared beginnings.

    Each prompt is seen 5 times; 4 of 5 times all 4 blocks hit at 120: 4 * 8 of 5 * 9 tokens.
    LRU loses a whole prompt's blocks just before they come again: at 117 blocks nothing hits, from
    118 on one more block of each prompt does.
    """
    trace = make_trace(cyclic(30, 5), block_size=2)
    curve, _ = replay_lru(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=None,
        min_recomputed_tokens=1,
        flops_by_depth=None,
    )

    [cliff] = find_cliffs(curve, block_size=2, num_prompt_tokens=int(trace.num_prompt_tokens.sum()))

    assert cliff.to_blocks == 120
    assert 100 <= cliff.from_blocks <= 116
    assert cliff.hit_rate_below == 0.0
    assert round(cliff.hit_rate_above, 4) == round(4 * 8 / (5 * 9), 4)


def test_even_curve_has_no_cliff() -> None:
    """Prompts that come again after 1, 2, 3 … others: every capacity gains a little."""
    prompts = [[n, n, 9] for n in range(40)] + [[n, n, 9] for n in reversed(range(40))]
    trace = make_trace(prompts, block_size=2)
    curve, _ = replay_lru(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=None,
        min_recomputed_tokens=1,
        flops_by_depth=None,
    )

    assert (
        find_cliffs(curve, block_size=2, num_prompt_tokens=int(trace.num_prompt_tokens.sum())) == ()
    )
