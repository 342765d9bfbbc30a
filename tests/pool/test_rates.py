"""The definitions of a hit rate, on a log small enough for a pencil and on the public traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefixaudit.core.pool import HitRates
from prefixaudit.core.prompt import Prompt
from prefixaudit.pool import hit_rates, replay_lru
from tests.chain.prompts import build, hash_prompt, mooncake_prompts, token_prompt

TRACES = Path(__file__).parents[3] / "shared/traces/mooncake"


def rates(
    prompts: list[Prompt], *, block_size: int = 16, capacity_blocks: int | None = None
) -> HitRates:
    trace = build(prompts, block_size=block_size)
    namespaces = trace.namespaces(())
    _, lookups = replay_lru(
        trace,
        namespaces,
        capacity_blocks=capacity_blocks,
        min_recomputed_tokens=1,
        flops_by_depth=None,
    )
    return hit_rates(trace, namespaces, lookups.num_cached_tokens, capacity_blocks=capacity_blocks)


def test_definitions_are_told_apart() -> None:
    """Blocks of 10: two full and a partial; the same again; one full block; nothing shared.

    Cached tokens 0, 20, 0 (the last token of the one block is computed), 0 of 25, 25, 10, 20.
    Matched ids 0, 3, 1, 0 of 3, 3, 1, 2; the id 1 behind 5 is no prefix match.
    """
    found = rates(
        [
            hash_prompt([1, 2, 3], 25, block_size=10),
            hash_prompt([1, 2, 3], 25, block_size=10),
            hash_prompt([1], 10, block_size=10),
            hash_prompt([5, 1], 20, block_size=10),
        ]
    )

    assert found == HitRates(
        of_tokens=20 / 80,
        of_ids=4 / 9,
        mean_over_requests=(20 / 25) / 4,
        of_requests=1 / 4,
        of_requests_by_ids=2 / 4,
        of_tokens_last_half=0.0,
        of_ids_last_half=1 / 3,
        num_matched_ids=4,
        num_ids=9,
    )


def test_partial_blocks_take_a_block_of_the_pool_where_ids_are_counted() -> None:
    """Two blocks hold the two full ones, but not the partial one behind them as well."""
    prompts = [hash_prompt([1, 2, 3], 25, block_size=10)] * 2
    found = rates(prompts, capacity_blocks=2)

    assert found.of_tokens == 20 / 50
    assert found.num_matched_ids == 2


def test_token_prompts_count_full_blocks_only() -> None:
    found = rates([token_prompt(range(10)), token_prompt(range(10))], block_size=4)

    assert (found.num_matched_ids, found.num_ids) == (2, 4)
    assert found.of_tokens == 8 / 20


def test_an_empty_log_has_no_rates() -> None:
    found = rates([])

    assert np.isnan([found.of_tokens, found.of_ids, found.mean_over_requests]).all()
    assert np.isnan([found.of_requests, found.of_requests_by_ids]).all()


def test_a_prompt_without_tokens_does_not_enter_the_mean() -> None:
    found = rates([token_prompt([]), token_prompt(range(5)), token_prompt(range(5))], block_size=4)

    assert found.mean_over_requests == pytest.approx((4 / 5) / 2)


@pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not here")
@pytest.mark.parametrize(
    ("name", "of_tokens", "of_ids", "of_requests"),
    [("conversation", 0.3734, 0.3664, 0.9999), ("synthetic", 0.6504, 0.6396, 0.4463)],
)
def test_public_traces_have_the_published_figures(
    name: str, of_tokens: float, of_ids: float, of_requests: float
) -> None:
    """Figures of an endless pool that were published with the traces, to four digits."""
    found = rates(mooncake_prompts(TRACES / f"{name}_trace.jsonl.gz"))

    assert round(found.of_tokens, 4) == of_tokens
    assert round(found.of_ids, 4) == of_ids
    assert round(found.of_requests_by_ids, 4) == of_requests
