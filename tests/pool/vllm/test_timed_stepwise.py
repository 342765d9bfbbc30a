"""The step-by-step scheduler in time: equal to the loop where both apply, and more groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace
from prefixaudit.errors import UsageError
from prefixaudit.pool.vllm.scheduler import SchedulerRules
from prefixaudit.pool.vllm.sequential import replay_sequential
from prefixaudit.pool.vllm.timed import StepSeconds, serve_timed
from prefixaudit.pool.vllm.timed_stepwise import serve_stepwise
from tests.pool.traces import make_trace
from tests.pool.vllm.pools import full, rules, swa

SECONDS = StepSeconds(
    flops_until=np.arange(200.0) ** 2,
    sample_flops=3.0,
    s_per_flop=np.full(60, 0.001),
    moved_s=np.full(60, 0.2),
    token_s=0.004,
    overhead_s=np.linspace(0.01, 0.07, 60),
)
SCHEDULER = SchedulerRules(max_num_batched_tokens=20, max_num_seqs=4, max_model_tokens=100)


def at(trace: BlockTrace, arrival_s: list[float]) -> BlockTrace:
    return replace(trace, arrival_s=np.asarray(arrival_s, dtype=np.float64))


@settings(deadline=None, max_examples=80)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=10),
    answers=st.lists(st.integers(1, 25), min_size=10, max_size=10),
    gaps=st.lists(st.integers(0, 9), min_size=10, max_size=10),
    capacity_blocks=st.integers(5, 40),
)
def test_same_as_the_loop_for_full_attention(
    prompts: list[list[int]], answers: list[int], gaps: list[int], capacity_blocks: int
) -> None:
    number = len(prompts)
    trace = at(make_trace(prompts, block_size=3), (np.cumsum(gaps[:number]) * 0.3 + 7).tolist())
    arguments = {
        "capacity_blocks": capacity_blocks,
        "pool": rules(full(3)),
        "scheduler": SCHEDULER,
        "seconds": SECONDS,
        "num_answer_tokens": np.asarray(answers[:number]),
    }
    nobody = np.zeros(number, np.int32)

    stepwise = serve_stepwise(trace, nobody, **arguments)  # type: ignore[arg-type]

    loop = serve_timed(trace, nobody, **arguments)  # type: ignore[arg-type]
    for name in (
        "num_cached_tokens",
        "num_hit_tokens",
        "num_computed_tokens",
        "num_discarded_tokens",
        "num_preemptions",
        "admitted_s",
        "first_token_s",
        "finished_s",
    ):
        np.testing.assert_allclose(getattr(stepwise, name), getattr(loop, name), rtol=1e-9)
    assert stepwise.num_steps == loop.num_steps
    assert stepwise.num_gaps.sum() == loop.num_gaps.sum()


@settings(deadline=None, max_examples=40)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=10),
    capacity_blocks=st.integers(30, 60),
)
def test_window_groups_one_at_a_time_are_the_sequential_replay(
    prompts: list[list[int]], capacity_blocks: int
) -> None:
    trace = make_trace(prompts, block_size=3)
    trace = at(trace, [1000.0 * place for place in range(len(prompts))])
    pool = rules(full(3), swa(7, 3))

    serving = serve_stepwise(
        trace,
        np.zeros(len(prompts), np.int32),
        capacity_blocks=capacity_blocks,
        pool=pool,
        scheduler=SCHEDULER,
        seconds=SECONDS,
        num_answer_tokens=np.ones(len(prompts), np.int64),
    )

    expected = replay_sequential(
        trace,
        np.zeros(len(prompts), np.int32),
        capacity_blocks=capacity_blocks,
        rules=pool,
        max_num_batched_tokens=20,
    )
    assert serving.num_cached_tokens.tolist() == expected.lookups.num_cached_tokens.tolist()


def test_other_blocks_than_the_pools_are_refused() -> None:
    with pytest.raises(UsageError, match="keyed by"):
        serve_stepwise(
            at(make_trace([[1] * 5], block_size=4), [0.0]),
            np.zeros(1, np.int32),
            capacity_blocks=9,
            pool=rules(full(3)),
            scheduler=SCHEDULER,
            seconds=SECONDS,
            num_answer_tokens=np.ones(1, np.int64),
        )
