"""Several replicas, and tiers below the pool, in the timed loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace
from prefixaudit.errors import UsageError
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool
from prefixaudit.pool.lru import hits_at
from prefixaudit.pool.vllm.scheduler import SchedulerRules
from prefixaudit.pool.vllm.timed import (
    Replicas,
    StepSeconds,
    Tiers,
    TierSeconds,
    TimedServing,
    serve_timed,
)
from tests.pool.traces import make_trace
from tests.pool.vllm.pools import full, rules

BLOCK_SIZE = 3
PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=14)


def at(trace: BlockTrace, arrival_s: list[float]) -> BlockTrace:
    return replace(trace, arrival_s=np.asarray(arrival_s, dtype=np.float64))


def alone(trace: BlockTrace) -> BlockTrace:
    """Return the trace with requests a thousand steps apart."""
    return at(trace, [1000.0 * place for place in range(trace.num_requests)])


def serve(trace: BlockTrace, capacity_blocks: int = 20, **changes: object) -> TimedServing:
    arguments: dict[str, object] = {
        "capacity_blocks": capacity_blocks,
        "pool": rules(full(trace.block_size)),
        "scheduler": SchedulerRules(
            max_num_batched_tokens=20, max_num_seqs=4, max_model_tokens=200
        ),
        "seconds": StepSeconds.constant(1.0, max_model_tokens=200, max_tokens=20),
        "num_answer_tokens": np.ones(trace.num_requests, dtype=np.int64),
    }
    nobody = np.zeros(trace.num_requests, np.int32)
    return serve_timed(trace, nobody, **{**arguments, **changes})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(prompts=PROMPTS, number=st.integers(1, 3), seed=st.integers(0, 9))
def test_given_replicas_are_pools_of_their_own(
    prompts: list[list[int]], number: int, seed: int
) -> None:
    trace = make_trace(prompts, block_size=BLOCK_SIZE)
    trace = at(trace, [0.5 * place for place in range(len(prompts))])
    replica_of = np.random.default_rng(seed).integers(0, number, len(prompts))

    together = serve(trace, replicas=Replicas(num_replicas=number, replica_of=replica_of))

    for replica in range(number):
        positions = np.flatnonzero(replica_of == replica)
        if len(positions):
            apart = serve(trace.of_requests(positions))
            np.testing.assert_array_equal(
                together.num_cached_tokens[positions], apart.num_cached_tokens
            )
            np.testing.assert_allclose(
                together.finished_s[positions], apart.finished_s, equal_nan=True
            )


@settings(deadline=None, max_examples=60)
@given(prompts=PROMPTS, rule=st.sampled_from(["least-cost", "best-score"]))
def test_one_replica_gets_all_whatever_the_router_looks_at(
    prompts: list[list[int]], rule: str
) -> None:
    """The loop is left and entered again at each arrival, and nothing changes by that."""
    trace = make_trace(prompts, block_size=BLOCK_SIZE)
    trace = at(trace, [0.7 * (place // 2) for place in range(len(prompts))])

    routed = serve(
        trace,
        replicas=Replicas(num_replicas=1, rule=rule, weights=(1.0, 1.0, 1.0)),  # type: ignore[arg-type]
    )

    plain = serve(trace)
    assert routed.num_steps == plain.num_steps
    np.testing.assert_array_equal(routed.num_cached_tokens, plain.num_cached_tokens)
    np.testing.assert_array_equal(routed.finished_s, plain.finished_s)


def test_least_cost_goes_where_the_prefix_is() -> None:
    """Two prompts of 5 blocks are spread; each comes again where it was computed."""
    first, second = [0] * 16, [1] * 16
    trace = alone(make_trace([first, second, second, first], block_size=BLOCK_SIZE))

    serving = serve(trace, replicas=Replicas(num_replicas=2, rule="least-cost", weights=(1, 1)))

    assert serving.replica.tolist() == [0, 1, 1, 0]
    assert serving.num_cached_tokens.tolist() == [0, 0, 15, 15]


def test_least_cost_leaves_a_busy_replica() -> None:
    """A hit of one block isn't worth a queue of 6: 20 tokens a step, one prompt of 18 each."""
    busy = [[0, 0, 0, *[n] * 15] for n in range(1, 7)]
    prompts = [[0, 0, 0, 9], *busy]
    trace = at(make_trace(prompts, block_size=BLOCK_SIZE), [0.0] + [10.0] * 6)

    serving = serve(trace, 60, replicas=Replicas(num_replicas=2, rule="least-cost", weights=(1, 1)))

    assert np.bincount(serving.replica[1:], minlength=2).tolist() == [3, 3]


@pytest.mark.parametrize(
    "replicas",
    [
        Replicas(num_replicas=0),
        Replicas(num_replicas=2),
        Replicas(num_replicas=2, replica_of=np.array([2])),
        Replicas(num_replicas=2, replica_of=np.array([0, 1])),
    ],
)
def test_replicas_that_cannot_be_are_refused(replicas: Replicas) -> None:
    with pytest.raises(UsageError):
        serve(alone(make_trace([[1] * 4], block_size=BLOCK_SIZE)), replicas=replicas)


# One request at a time


@settings(deadline=None, max_examples=100)
@given(
    prompts=PROMPTS,
    capacity_blocks=st.integers(9, 20),
    unhashed_first=st.booleans(),
)
def test_one_at_a_time_is_the_sequential_replay(
    prompts: list[list[int]], capacity_blocks: int, unhashed_first: bool
) -> None:
    trace = alone(make_trace(prompts, block_size=BLOCK_SIZE))
    pool = rules(full(BLOCK_SIZE), version="0.24.0" if unhashed_first else "0.23.0")

    serving = serve(trace, capacity_blocks, pool=pool)

    expected = simulate_pool(
        trace,
        np.zeros(len(prompts), np.int32),
        capacity_blocks=capacity_blocks,
        rules=BlockPoolRules(unhashed_first=unhashed_first),
    )
    assert serving.num_cached_tokens.tolist() == expected.lookups.num_cached_tokens.tolist()


@settings(deadline=None, max_examples=100)
@given(
    prompts=PROMPTS,
    answers=st.lists(st.integers(1, 12), min_size=14, max_size=14),
    capacity_blocks=st.integers(12, 26),
    tier_blocks=st.integers(0, 9),
    writes_through=st.booleans(),
)
def test_tokens_are_conserved(
    prompts: list[list[int]],
    answers: list[int],
    capacity_blocks: int,
    tier_blocks: int,
    writes_through: bool,
) -> None:
    """Computed + hit + fetched = prompt + answer without its last token + thrown away."""
    trace = at(make_trace(prompts, block_size=BLOCK_SIZE), [0.3 * n for n in range(len(prompts))])
    lengths = np.asarray(answers[: len(prompts)])

    serving = serve(
        trace,
        capacity_blocks,
        num_answer_tokens=lengths,
        tiers=Tiers(
            tiers=(TierSeconds(num_blocks=tier_blocks, token_s=0.01),),
            writes_through=writes_through,
        ),
    )

    assert not serving.refused.any()
    done = serving.num_computed_tokens + serving.num_hit_tokens + serving.num_fetched_tokens
    needed = trace.num_prompt_tokens + lengths - 1
    assert (done == needed + serving.num_discarded_tokens).all()
    [samples] = serving.samples
    assert (samples[:, 1] + samples[:, 2] <= capacity_blocks).all()
    assert (samples[:, 5] <= samples[:, 1]).all()


# Tiers


@settings(deadline=None, max_examples=100)
@given(
    prompts=PROMPTS,
    capacity_blocks=st.integers(9, 14),
    writes_through=st.booleans(),
    promotes=st.booleans(),
)
def test_endless_tier_has_all_that_an_endless_pool_hits(
    prompts: list[list[int]], capacity_blocks: int, writes_through: bool, promotes: bool
) -> None:
    """What was computed is in the pool or below it.

    Written through, all of it is below; else a block of the pool behind a gap isn't, and it is
    computed again.
    """
    trace = alone(make_trace(prompts, block_size=BLOCK_SIZE))
    tiers = Tiers(
        tiers=(TierSeconds(num_blocks=10_000, token_s=0.0),),
        writes_through=writes_through,
        promotes=promotes,
    )

    serving = serve(trace, capacity_blocks, tiers=tiers)

    nobody = np.zeros(len(prompts), np.int32)
    [endless] = hits_at(trace, nobody, [None], min_recomputed_tokens=1)
    found = serving.num_cached_tokens // BLOCK_SIZE + serving.num_tier_blocks.sum(axis=1)
    if writes_through:
        assert found.tolist() == endless.tolist()
    else:
        assert (found <= endless).all()
        assert (found >= serve(trace, capacity_blocks).num_cached_tokens // BLOCK_SIZE).all()


@settings(deadline=None, max_examples=60)
@given(prompts=PROMPTS, capacity_blocks=st.integers(9, 20), writes_through=st.booleans())
def test_tier_without_room_changes_nothing(
    prompts: list[list[int]], capacity_blocks: int, writes_through: bool
) -> None:
    trace = alone(make_trace(prompts, block_size=BLOCK_SIZE))
    tiers = Tiers(tiers=(TierSeconds(num_blocks=0, token_s=1.0),), writes_through=writes_through)

    with_tier = serve(trace, capacity_blocks, tiers=tiers)

    without = serve(trace, capacity_blocks)
    np.testing.assert_array_equal(with_tier.num_cached_tokens, without.num_cached_tokens)
    np.testing.assert_array_equal(with_tier.finished_s, without.finished_s)
    assert not with_tier.num_tier_blocks.any()


def turns(*prompts: int) -> BlockTrace:
    """Prompts of 2 full blocks and a token, each of one letter, one after another."""
    return alone(make_trace([[letter] * 7 for letter in prompts], block_size=BLOCK_SIZE))


def test_evicted_block_comes_back_from_the_tier_and_takes_its_time() -> None:
    """A pool of 3 holds one prompt. 1 is pushed out by 2, and fetched: 2 blocks of 3 tokens.

    A step is 1 s, the fetch 0.5 s + 6 * 0.1 s.
    """
    tiers = Tiers(
        tiers=(TierSeconds(num_blocks=8, token_s=0.1, fixed_s=0.5),), writes_through=False
    )

    serving = serve(turns(1, 2, 1), 3, tiers=tiers)

    assert serving.num_cached_tokens.tolist() == [0, 0, 0]
    assert serving.num_tier_blocks.tolist() == [[0], [0], [2]]
    assert serving.num_computed_tokens.tolist() == [7, 7, 1]
    assert serving.fetch_s.tolist() == pytest.approx([0.0, 0.0, 1.1])
    assert (serving.first_token_s - serving.admitted_s).tolist() == pytest.approx([1.0, 1.0, 2.1])


def test_short_fetch_is_computed_instead() -> None:
    tiers = Tiers(tiers=(TierSeconds(num_blocks=8, token_s=0.1),), min_blocks=3)

    serving = serve(turns(1, 2, 1), 3, tiers=tiers)

    assert not serving.num_tier_blocks.any()
    assert serving.num_computed_tokens.tolist() == [7, 7, 7]


def test_what_the_first_tier_gives_up_goes_to_the_next() -> None:
    """The first tier holds one prompt's 2 blocks: 1 goes down when 2 comes, and 2 when 3 comes."""
    tiers = Tiers(
        tiers=(
            TierSeconds(num_blocks=2, token_s=0.1),
            TierSeconds(num_blocks=8, token_s=1.0),
        ),
        writes_through=True,
    )

    serving = serve(turns(1, 2, 3, 1, 3), 3, tiers=tiers)

    assert serving.num_tier_blocks.tolist() == [[0, 0], [0, 0], [0, 0], [0, 2], [0, 2]]


def test_without_promotion_a_block_stays_where_it_was_found() -> None:
    """As above, but 1 stays below: 3 is still in the first tier."""
    tiers = Tiers(
        tiers=(
            TierSeconds(num_blocks=2, token_s=0.1),
            TierSeconds(num_blocks=8, token_s=1.0),
        ),
        writes_through=True,
        promotes=False,
    )

    serving = serve(turns(1, 2, 3, 1, 3), 3, tiers=tiers)

    assert serving.num_tier_blocks.tolist() == [[0, 0], [0, 0], [0, 0], [0, 2], [2, 0]]
