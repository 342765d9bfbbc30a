"""Samples of a prompt, in closed form and as the operation model runs them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.pool.forks import fork_blocks
from prefixaudit.pool.vllm.rules import GroupRules, pool_rules, release_rules
from prefixaudit.pool.vllm.sharing import fork_cost


@settings(deadline=None, max_examples=50)
@given(num_tokens=st.integers(1, 200), num_samples=st.integers(1, 5))
def test_closed_form_is_what_the_pool_holds(num_tokens: int, num_samples: int) -> None:
    rules = pool_rules(release_rules("0.33.0"), (GroupRules(kind="full", block_size=16),))

    run = fork_cost(rules, num_tokens, num_samples)
    shared, copies, recomputed = fork_blocks(num_tokens, num_samples, 16)

    assert recomputed == run.num_recomputed_tokens
    if num_samples > 1:
        assert shared == run.num_shared_blocks
        # The first sample's private blocks are no copies.
        assert copies == run.num_private_blocks * (num_samples - 1) // num_samples
    else:
        assert copies == 0


def test_token_blocks_share_all_but_the_last_token() -> None:
    assert fork_blocks(100, 3, 1) == (99, 2, 2)
