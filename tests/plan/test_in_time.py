"""The conversation trace in time, against the sequential model and published figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prefixaudit.chain.partial import with_partial_blocks
from prefixaudit.core.trace import BlockTrace
from prefixaudit.deployment import Overrides, load_deployment
from prefixaudit.plan import PlanOptions, plan
from prefixaudit.plan.options import GpuChoice
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool
from prefixaudit.pool.lru import hits_at
from prefixaudit.pool.tails import num_slots, with_tails
from prefixaudit.pool.vllm.rules import GroupRules, pool_rules, release_rules
from prefixaudit.pool.vllm.scheduler import SchedulerRules
from prefixaudit.pool.vllm.timed import StepSeconds, TimedServing, serve_timed
from tests.plan.mooncake import DATA, TRACES, mooncake

CAPACITY_BLOCKS = 16_384


def percent(trace: BlockTrace, hit_tokens: np.ndarray) -> float:
    return 100 * float(hit_tokens.sum()) / float(trace.num_prompt_tokens.sum())


def one_after_another(trace: BlockTrace, *, unhashed_first: bool) -> float:
    pool = simulate_pool(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=CAPACITY_BLOCKS,
        rules=BlockPoolRules(unhashed_first=unhashed_first),
        with_donors=False,
    )
    return percent(trace, pool.lookups.num_cached_tokens)


def in_time(trace: BlockTrace, version: str, speed: float) -> TimedServing:
    """Serve with about 4 petaFLOP/s of an 8B model; `speed` 1 keeps up with the trace."""
    answers = np.maximum(trace.num_output_tokens, 1)
    longest = int((trace.num_prompt_tokens + answers).max()) + 1
    places = np.arange(longest + 1.0)
    return serve_timed(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=CAPACITY_BLOCKS,
        pool=pool_rules(release_rules(version), (GroupRules(kind="full", block_size=512),)),
        scheduler=SchedulerRules(
            max_num_batched_tokens=8192, max_num_seqs=256, max_model_tokens=longest
        ),
        seconds=StepSeconds(
            flops_until=places * 1.6e10 + places**2 * 2.6e5,
            sample_flops=1e9,
            s_per_flop=np.full(8193, 1 / 4e15 / speed),
            moved_s=np.full(8193, 0.005 / speed),
            token_s=2e-9 / speed,
            overhead_s=np.full(8193, 0.001 / speed),
        ),
        num_answer_tokens=answers,
    )


def test_what_the_sequential_figures_of_this_trace_mean() -> None:
    """27.1 % is a pool in which the unfilled tail of a prompt takes a block that queues.

    So does vLLM's up to 0.23, and a replay whose partial ids are blocks. Full blocks alone give
    27.6 %, and so does vLLM from 0.24 on, whose tails are taken first. Answers that take blocks too
    give 26.7 %; only their full blocks, 27.2 %.
    """
    trace = mooncake("conversation")
    nobody = np.zeros(trace.num_requests, np.int32)
    answers = replace(trace, num_generated_tokens=trace.num_output_tokens)
    full_answers = (trace.num_prompt_tokens + trace.num_output_tokens) // 512 - trace.num_blocks

    def lru(own: BlockTrace) -> float:
        own = replace(own, num_prompt_tokens=trace.num_prompt_tokens)
        [hits] = hits_at(own, nobody, [CAPACITY_BLOCKS], min_recomputed_tokens=1)
        return percent(trace, hits * 512)

    tails = num_slots(trace)[1] - trace.num_blocks

    assert one_after_another(trace, unhashed_first=False) == pytest.approx(27.06, abs=0.005)
    assert lru(with_tails(trace, tails)) == pytest.approx(27.06, abs=0.005)
    assert lru(with_partial_blocks(trace)) == pytest.approx(27.07, abs=0.005)
    assert lru(trace) == pytest.approx(27.63, abs=0.005)
    assert one_after_another(trace, unhashed_first=True) == pytest.approx(27.63, abs=0.005)
    assert one_after_another(answers, unhashed_first=False) == pytest.approx(26.69, abs=0.005)
    assert lru(with_tails(trace, full_answers)) == pytest.approx(27.22, abs=0.005)


@pytest.mark.parametrize("speed", [0.5, 1.0, 3.0])
def test_timed_hit_rate_is_within_half_a_point(speed: float) -> None:
    """A public discrete-event replay gave 27.2 % with one worker; sequentially it is 27.1 %."""
    trace = mooncake("conversation")

    newest = percent(trace, in_time(trace, "0.33.0", speed).num_cached_tokens)
    older = percent(trace, in_time(trace, "0.23.0", speed).num_cached_tokens)

    assert newest == pytest.approx(27.2, abs=0.5)
    # Its answers' blocks queue with the others: that alone takes 0.37 points.
    assert older == pytest.approx(one_after_another_with_answers(trace), abs=0.1)


def one_after_another_with_answers(trace: BlockTrace) -> float:
    answers = replace(trace, num_generated_tokens=trace.num_output_tokens)
    return one_after_another(answers, unhashed_first=False)


def test_plan_without_an_engine_keeps_time_to_the_rule_of_the_sequential_pool() -> None:
    mooncake("conversation")  # skips where the public trace isn't there
    deployment = load_deployment(
        None,
        Overrides(
            model_dir=DATA / "model-configs" / "llama-3.1-8b", capacity_blocks=CAPACITY_BLOCKS
        ),
    )

    report = plan(
        [str(TRACES / "conversation_trace.jsonl.gz")],
        deployment,
        PlanOptions(gpus=(GpuChoice(name="h100-sxm"),), capacities_blocks=(CAPACITY_BLOCKS,)),
    )

    [row] = [option for option in report.options if option.capacity_blocks == CAPACITY_BLOCKS][:1]
    assert row.token_hit_rate == pytest.approx(0.271, abs=0.0005)
    assert row.timed is not None
    assert list(row.timed.token_hit_rate) == pytest.approx([0.272, 0.272], abs=0.005)
