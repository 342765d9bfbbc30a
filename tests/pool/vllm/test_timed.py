"""The timed loop against the step-by-step scheduler, recorded runs, and times by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.trace import BlockTrace, Int32Array
from prefixaudit.errors import UsageError
from prefixaudit.pool.explicit_blocks import block_ids
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import NEVER, Scheduler, SchedulerRules, ServedRequest, Step
from prefixaudit.pool.vllm.sharing import occupancy
from prefixaudit.pool.vllm.timed import StepSeconds, TimedServing, serve_timed
from prefixaudit.verify._vllm_vectors import rules_of, tokens_of
from tests.pool.traces import make_trace
from tests.pool.vllm.pools import full, rules, swa

DATA = Path(__file__).parents[2] / "data" / "vllm_sched"
ROOFLINE = StepSeconds(
    flops_until=np.arange(200.0) ** 2,
    sample_flops=3.0,
    s_per_flop=np.full(60, 0.001),
    moved_s=np.full(60, 0.2),
    token_s=0.004,
    overhead_s=np.linspace(0.01, 0.07, 60),
)


def roofline_s(step: Step) -> float:
    """Work a step's seconds out from its batch."""
    new = step.num_tokens
    flops = 3.0 * len(step.sampled)
    context = 0
    for _, start, num_tokens in step.batch:
        flops += (start + num_tokens) ** 2 - start**2
        context += start + num_tokens
    return max(flops * 0.001, 0.2 + context * 0.004) + 0.01 + 0.06 * new / 59


def serve_stepwise(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int,
    pool: PoolRules,
    scheduler: SchedulerRules,
    answers: list[int],
) -> tuple[list[tuple[float, ...]], int, tuple[int, int, int]]:
    """Serve with the operation model: (cached, hit, computed, thrown away, preemptions, times)."""
    of = Scheduler(pool, capacity_blocks + 1, scheduler)
    keys = trace.num_distinct_blocks
    requests = [
        ServedRequest(
            number=position,
            keys=(block_ids(trace, position) + int(namespaces[position]) * keys).tolist(),
            num_prompt_tokens=int(trace.num_prompt_tokens[position]),
            num_tokens=int(trace.num_prompt_tokens[position]),
            num_answer_tokens=answers[position],
            reads_cache=bool(trace.reads_cache[position]),
        )
        for position in range(trace.num_requests)
    ]
    admitted = [np.nan] * len(requests)
    first_token = [np.nan] * len(requests)
    finished = [np.nan] * len(requests)
    refused: set[int] = set()
    coming = sorted(range(len(requests)), key=lambda position: trace.arrival_s[position])
    now, num_steps = 0.0, 0
    seen = (0, 0, 0)
    while coming or of.running or of.waiting:
        if not of.running and not of.waiting:
            now = max(now, float(trace.arrival_s[coming[0]]))
        while coming and trace.arrival_s[coming[0]] <= now:
            of.add(requests[coming.pop(0)])
        step = of.step()
        if step.stuck is not None:
            refused.add(of.withdraw_first().number)
            continue
        num_steps += 1
        for request, _, _ in step.batch:
            if np.isnan(admitted[request.number]):
                admitted[request.number] = now
        now += roofline_s(step)
        for request in step.sampled:
            if np.isnan(first_token[request.number]):
                first_token[request.number] = now
        for request in step.finished:
            finished[request.number] = now
        used = occupancy(of.manager)
        seen = (used.num_used_blocks, used.num_cached_free_blocks, used.num_shared_blocks)
    rows: list[tuple[float, ...]] = [
        (
            NEVER if each.number in refused else each.num_cached_tokens,
            each.num_hit_tokens,
            each.num_scheduled_tokens,
            each.num_discarded_tokens,
            each.num_preemptions,
            np.nan if each.number in refused else admitted[each.number],
            np.nan if each.number in refused else first_token[each.number],
            finished[each.number],
        )
        for each in requests
    ]
    return rows, num_steps, seen


def rows_of(serving: TimedServing) -> list[tuple[float, ...]]:
    columns = (
        serving.num_cached_tokens,
        serving.num_hit_tokens,
        serving.num_computed_tokens,
        serving.num_discarded_tokens,
        serving.num_preemptions,
        serving.admitted_s,
        serving.first_token_s,
        serving.finished_s,
    )
    return [tuple(float(column[place]) for column in columns) for place in range(len(columns[0]))]


def at(trace: BlockTrace, arrival_s: list[float]) -> BlockTrace:
    return replace(trace, arrival_s=np.asarray(arrival_s, dtype=np.float64))


REQUEST = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=30),  # prompt
    st.integers(1, 14),  # answer
    st.integers(0, 5),  # tenths of a second since the last
    st.integers(0, 1),  # namespace
    st.booleans(),  # reads the cache
)


@settings(deadline=None, max_examples=150)
@given(
    arrivals=st.lists(REQUEST, min_size=1, max_size=14),
    capacity_blocks=st.integers(5, 30),
    budget=st.integers(3, 50),
    max_num_seqs=st.integers(1, 6),
    version=st.sampled_from(["0.23.0", "0.24.0"]),
    use_eagle=st.booleans(),
    reserves=st.booleans(),
    long_prefill=st.sampled_from([0, 5]),
    watermark=st.sampled_from([0, 0, 2]),
)
def test_loop_equals_the_step_by_step_scheduler(
    arrivals: list[tuple[list[int], int, int, int, bool]],
    capacity_blocks: int,
    budget: int,
    max_num_seqs: int,
    version: str,
    use_eagle: bool,
    reserves: bool,
    long_prefill: int,
    watermark: int,
) -> None:
    prompts, answers, gaps, spaces, reads = (list(column) for column in zip(*arrivals, strict=True))
    trace = at(
        make_trace(
            prompts,
            block_size=3,
            answers=[[7] * (answer - 1) for answer in answers],
            reads_cache=reads,
        ),
        (np.cumsum(gaps) * 0.1).tolist(),
    )
    namespaces = np.asarray(spaces, dtype=np.int32)
    pool = rules(full(3), version=version, use_eagle=use_eagle)
    scheduler = SchedulerRules(
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        max_model_tokens=60,
        reserves_whole_prompt=reserves,
        long_prefill_tokens=long_prefill,
        watermark_blocks=watermark,
    )

    serving = serve_timed(
        trace,
        namespaces,
        capacity_blocks=capacity_blocks,
        pool=pool,
        scheduler=scheduler,
        seconds=ROOFLINE,
        num_answer_tokens=np.asarray(answers),
    )

    expected, num_steps, seen = serve_stepwise(
        trace,
        namespaces,
        capacity_blocks=capacity_blocks,
        pool=pool,
        scheduler=scheduler,
        answers=answers,
    )
    assert serving.num_steps == num_steps
    np.testing.assert_allclose(rows_of(serving), expected, rtol=1e-9)
    [samples] = serving.samples
    if len(samples) == num_steps > 0:
        assert tuple(samples[-1, [1, 2, 5]]) == seen


@pytest.mark.parametrize(
    "name", ["vllm-0.22.0/sched-04", "vllm-0.33.0/sched-04", "vllm-0.33.0/sched-08"]
)
def test_recorded_run_with_steps_of_one_second(name: str) -> None:
    data = json.loads((DATA / f"{name}.json").read_bytes())
    arrivals, recorded = data["arrivals"], data["settings"]
    answers = [arrival["max_tokens"] for arrival in arrivals]
    trace = at(
        make_trace(
            [tokens_of(arrival["prompt"]) for arrival in arrivals],
            block_size=recorded["block_size"],
            answers=[
                tokens_of([[arrival["outseg"], 0, arrival["max_tokens"] - 1]])
                for arrival in arrivals
            ],
        ),
        [arrival["step"] for arrival in arrivals],
    )
    budget = recorded["max_num_batched_tokens"]

    serving = serve_timed(
        trace,
        np.zeros(len(arrivals), np.int32),
        capacity_blocks=recorded["num_blocks"] - 1,
        pool=rules_of(recorded, data["engine_version"]),
        scheduler=SchedulerRules(
            max_num_batched_tokens=budget,
            max_num_seqs=recorded["max_num_seqs"],
            max_model_tokens=recorded["max_model_len"],
        ),
        seconds=StepSeconds.constant(
            1.0, max_model_tokens=recorded["max_model_len"], max_tokens=budget
        ),
        num_answer_tokens=np.asarray(answers),
    )

    found = [
        {
            "rid": arrival["rid"],
            "cached": int(serving.num_cached_tokens[place]),
            "first_step": int(serving.admitted_s[place]),
            # A step's result is there when it ends, a second after it began.
            "finish_step": int(serving.finished_s[place]) - 1,
            "preemptions": int(serving.num_preemptions[place]),
            "scheduled_tokens": int(serving.num_computed_tokens[place]),
        }
        for place, arrival in enumerate(arrivals)
    ]
    assert found == data["expect"]


def serve(trace: BlockTrace, answers: list[int], **changes: object) -> TimedServing:
    seconds = StepSeconds.constant(1.0, max_model_tokens=200, max_tokens=50)
    settings_ = SchedulerRules(max_num_batched_tokens=50, max_num_seqs=4, max_model_tokens=200)
    arguments: dict[str, object] = {
        "capacity_blocks": 20,
        "pool": rules(full(4)),
        "scheduler": settings_,
        "seconds": seconds,
        "num_answer_tokens": np.asarray(answers),
    }
    namespaces = np.zeros(trace.num_requests, np.int32)
    return serve_timed(trace, namespaces, **{**arguments, **changes})  # type: ignore[arg-type]


def test_time_between_tokens_is_counted() -> None:
    """An answer of 4 tokens has 3 gaps of a second each."""
    serving = serve(at(make_trace([[1] * 5], block_size=4), [0.0]), [4])

    assert serving.num_gaps.sum() == 3
    assert serving.gap_percentile_s(0.5) == pytest.approx(1.0, rel=0.025)
    assert serving.first_token_s.tolist() == [1.0]
    assert serving.finished_s.tolist() == [4.0]


def test_clock_is_that_of_the_arrivals() -> None:
    serving = serve(at(make_trace([[1] * 5, [2] * 5], block_size=4), [1e9, 1e9 + 40]), [1, 1])

    assert serving.finished_s.tolist() == [1e9 + 1, 1e9 + 41]


def test_answer_that_the_log_does_not_hold_takes_blocks_without_keys() -> None:
    """5 + 8 tokens are 4 blocks with the last token's; one of them, the prompt's, can be hit."""
    trace = at(make_trace([[1] * 5, [1] * 17], block_size=4), [0.0, 50.0])

    serving = serve(trace, [9, 1])

    assert serving.num_cached_tokens.tolist() == [0, 4]


def test_request_that_never_fits_is_refused_and_the_next_is_served() -> None:
    trace = at(make_trace([[1] * 100, [2] * 5], block_size=4), [0.0, 0.0])

    serving = serve(trace, [1, 1])

    assert serving.refused.tolist() == [True, False]
    assert serving.num_cached_tokens.tolist() == [-1, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"pool": rules(full(4), swa(9))},
        {"pool": rules(full(16))},
        {"num_answer_tokens": np.asarray([0])},
        {"num_answer_tokens": np.asarray([1, 1])},
        {"arrival_s": np.asarray([np.nan])},
        {"seconds": StepSeconds.constant(1.0, max_model_tokens=3, max_tokens=50)},
        {"seconds": StepSeconds.constant(1.0, max_model_tokens=200, max_tokens=3)},
        {
            "scheduler": SchedulerRules(
                max_num_batched_tokens=50, max_num_seqs=1, max_model_tokens=5
            )
        },
    ],
)
def test_what_cannot_be_served_in_time_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        serve(at(make_trace([[1] * 5], block_size=4), [0.0]), [1], **changes)


def test_empty_trace_is_served_at_once() -> None:
    serving = serve(make_trace([], block_size=4), [])

    assert serving.num_steps == 0
