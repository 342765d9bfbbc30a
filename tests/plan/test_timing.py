"""Seconds of a step: both ends of the cost model, and what was measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.time import TimeModel
from prefixaudit.errors import UsageError
from prefixaudit.families import describe
from prefixaudit.plan.timing import MeasuredEngine, StepRange, measured_steps, model_steps
from prefixaudit.pool.vllm.timed import StepSeconds
from tests.plan.mooncake import DATA


def llama(tensor_parallel: int = 1) -> TimeModel:
    config = json.loads((DATA / "model-configs" / "llama-3.1-8b" / "config.json").read_bytes())
    return TimeModel(
        spec=describe(config), gpu=find_gpu("h100-sxm"), tensor_parallel=tensor_parallel
    )


def seconds_of(steps: StepSeconds, start: int, new: int, num_sampled: int) -> float:
    """Return what a step of one request takes, as the timed loop does it."""
    flops = steps.flops_until[start + new] - steps.flops_until[start]
    flops += num_sampled * steps.sample_flops
    moved = steps.moved_s[new] + (start + new) * steps.token_s
    return float(max(flops * steps.s_per_flop[new], moved) + steps.overhead_s[new])


@pytest.mark.parametrize("tensor_parallel", [1, 4])
@pytest.mark.parametrize(("cached", "new"), [(0, 1), (0, 700), (4096, 1024), (8000, 1)])
def test_a_lone_prompt_takes_what_the_cost_model_says(
    tensor_parallel: int, cached: int, new: int
) -> None:
    """One step that computes a whole prompt is `TimeModel.prefill_s`."""
    model = llama(tensor_parallel)

    steps = model_steps(model, max_model_tokens=9000, max_tokens=2048)

    expected = model.prefill_s(np.array([new]), np.array([cached]))
    assert seconds_of(steps.fast, cached, new, 1) == pytest.approx(float(expected.lo[0]))
    assert seconds_of(steps.slow, cached, new, 1) == pytest.approx(float(expected.hi[0]))


def test_decode_of_a_batch_reads_the_weights_once() -> None:
    """64 requests of 1,000 tokens: 16.06 GB of weights, less the embedding's rows, and 64 k of KV.

    131,072 bytes of KV a token; 3,350 GB/s, 0.8 of it reached at best: 5.6 ms + 3.1 ms.
    """
    steps = model_steps(llama(), max_model_tokens=2000, max_tokens=64).fast

    seconds = steps.moved_s[64] + 64 * 1000 * steps.token_s

    weights = (8_030_261_248 - 128_256 * 4096) * 2
    expected = (weights + 64_000 * 131_072) / (3350e9 * 0.8)
    assert seconds == pytest.approx(expected, rel=0.01)


def test_chunks_of_a_prompt_add_up_to_its_flops() -> None:
    steps = model_steps(llama(), max_model_tokens=4000, max_tokens=64).fast
    flops = llama().flops(np.array([4000]), np.array([0]))[0]

    assert steps.flops_until[4000] + steps.sample_flops == pytest.approx(flops)


def test_measured_engine_takes_its_throughput_or_its_shortest_step() -> None:
    """10,000 tokens/s: 1,000 tokens take 0.1 s; a decode step takes its 12 ms."""
    steps: StepRange = measured_steps(
        MeasuredEngine(prefill_tokens_per_s=10_000, step_s=0.012),
        max_model_tokens=5000,
        max_tokens=2000,
    )

    assert seconds_of(steps.fast, 3000, 1000, 1) == pytest.approx(0.1)
    assert seconds_of(steps.fast, 3000, 1, 1) == pytest.approx(0.012)
    assert len(steps.ends) == 1


def test_assumptions_are_those_of_shared_steps() -> None:
    lines = model_steps(llama(), max_model_tokens=10, max_tokens=10).assumptions

    assert any("dense peak" in line for line in lines)
    assert not any("one step of its own" in line for line in lines)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError):
        measured_steps(
            MeasuredEngine(prefill_tokens_per_s=0, step_s=0.1), max_model_tokens=9, max_tokens=9
        )
    with pytest.raises(UsageError):
        model_steps(llama(), max_model_tokens=9, max_tokens=1 << 20)
