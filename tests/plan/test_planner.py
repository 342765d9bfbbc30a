"""Whole plans of small logs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import prefixaudit
from prefixaudit.deployment import Deployment, Overrides, load_deployment
from prefixaudit.errors import UsageError
from prefixaudit.plan import PlanOptions, PlanReport, plan
from prefixaudit.plan.formats import FORMATS
from prefixaudit.plan.options import GpuChoice, TierChoice
from prefixaudit.plan.report import Option
from prefixaudit.plan.timing import MeasuredEngine
from tests.plan.mooncake import DATA

CASES = DATA / "cases"
LLAMA = DATA / "model-configs" / "llama-3.1-8b"
SCHEMA = Path(prefixaudit.__file__).parent / "schemas" / "plan.schema.json"


def deployed(**overrides: object) -> Deployment:
    return load_deployment(None, Overrides(**overrides))  # type: ignore[arg-type]


def trace_file(folder: Path, prompts: list[list[int]], *, gap_ms: int = 1000) -> str:
    """Write prompts of whole 512-token blocks and 100 tokens, their ids' last one included."""
    path = folder / "trace.jsonl"
    lines = [
        json.dumps(
            {
                "timestamp": place * gap_ms,
                "input_length": 512 * (len(ids) - 1) + 100,
                "output_length": 20,
                "hash_ids": ids,
            }
        )
        for place, ids in enumerate(prompts)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def conversations(number: int = 12, turns: int = 4) -> list[list[int]]:
    """Turns of conversations in turn: a block of all, then 3 more blocks of their own a turn."""
    return [
        [0, *range(1000 * (c + 1), 1000 * (c + 1) + 3 * (turn + 1)), 10_000_000 + 100 * c + turn]
        for turn in range(turns)
        for c in range(number)
    ]


def options_of(report: PlanReport, sweep: str) -> list[Option]:
    return [option for option in report.options if option.sweep == sweep]


def full_options() -> PlanOptions:
    return PlanOptions(
        gpus=(GpuChoice(name="h100-sxm"), GpuChoice(name="h200", tensor_parallel=2)),
        kv_cache_dtypes=("auto", "fp8"),
        block_sizes=(512, 1024),
        policies=("lru", "fifo", "lfu", "slru", "belady"),
        tiers=(TierChoice(name="cpu", gib=8.0), TierChoice(name="nvme", num_blocks=1000)),
        replicas=(1, 2),
        routings=("round-robin", "random", "consistent-hash", "dynamo", "llm-d"),
        ttft_p95_s=2.0,
        usd_per_gpu_hour=2.5,
        has_isolation=True,
        sample=0.5,
        load=1.5,
    )


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> PlanReport:
    path = trace_file(tmp_path_factory.mktemp("log"), conversations())
    return plan(
        [path],
        deployed(model_dir=LLAMA, engine="vllm@0.33.0", capacity_blocks=80),
        full_options(),
    )


def test_json_is_what_the_schema_says(full_report: PlanReport) -> None:
    values = json.loads(FORMATS["json"].render(full_report))

    jsonschema.validate(values, json.loads(SCHEMA.read_bytes()))


def test_every_sweep_has_its_rows(full_report: PlanReport) -> None:
    assert [option.label for option in options_of(full_report, "block-size")] == [
        "512 tokens a block",
        "1,024 tokens a block",
    ]
    assert len(options_of(full_report, "policy")) == 6
    assert [option.label for option in options_of(full_report, "hardware")] == [
        "1 x H100 SXM",
        "1 x H100 SXM, fp8 KV",
        "2 x H200 SXM",
        "2 x H200 SXM, fp8 KV",
    ]
    assert [option.label for option in options_of(full_report, "tiers")] == [
        "GPU",
        "GPU + cpu 8 GiB",
        "GPU + cpu 8 GiB + nvme 1,000 blocks",
    ]
    assert len(options_of(full_report, "replicas")) == 10
    # No request of a trace names its tenant.
    assert options_of(full_report, "isolation") == []


def test_figures_keep_their_order(full_report: PlanReport) -> None:
    """More room, more tiers, Belady: never fewer hits; fp8 holds more than 16 bits."""
    rates = [option.token_hit_rate or 0 for option in options_of(full_report, "capacity")]
    assert rates == sorted(rates)
    tiers = [option.token_hit_rate or 0 for option in options_of(full_report, "tiers")]
    assert tiers == sorted(tiers)
    policies = [option.token_hit_rate or 0 for option in options_of(full_report, "policy")]
    assert max(policies) == policies[-1]
    sizes = {o.label: o.capacity_blocks or 0 for o in options_of(full_report, "hardware")}
    assert sizes["1 x H100 SXM, fp8 KV"] == pytest.approx(2 * sizes["1 x H100 SXM"], rel=0.01)
    for option in full_report.options:
        # A pool smaller than every prompt serves nobody.
        if option.timed is not None and option.timed.num_refused < full_report.num_requests:
            for part in (option.timed.ttft, option.timed.queue, option.timed.prefill):
                assert part.p50_s[0] <= part.p50_s[1]
                assert part.p50_s[1] <= part.p95_s[1] <= part.p99_s[1]


def test_gpus_and_money_follow_from_replicas(full_report: PlanReport) -> None:
    [option] = [o for o in options_of(full_report, "hardware") if o.label == "2 x H200 SXM"]

    assert option.replicas_needed == (1, 1)
    assert option.gpus_needed == (2, 2)
    assert option.usd_per_day == (2 * 2.5 * 24, 2 * 2.5 * 24)


def test_results_do_not_depend_on_jobs(full_report: PlanReport, tmp_path: Path) -> None:
    path = trace_file(tmp_path, conversations())
    report = plan(
        [path],
        deployed(model_dir=LLAMA, engine="vllm@0.33.0", capacity_blocks=80),
        replace(full_options(), jobs=4),
    )

    # Compared as text: a percentile of nothing is NaN, which no NaN equals.
    assert repr(report.options) == repr(full_report.options)
    assert report.recommendation == full_report.recommendation


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats_hold_the_recommendation_or_the_rows(full_report: PlanReport, name: str) -> None:
    text = FORMATS[name].render(full_report)

    assert full_report.recommendation is not None
    if name == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(rows) == len(full_report.options)
        assert float(rows[0]["token_hit_rate"]) == full_report.options[0].token_hit_rate
    else:
        assert full_report.recommendation.action in " ".join(text.replace("\\", "").split())


def test_text_fits_a_terminal(full_report: PlanReport) -> None:
    assert max(map(len, FORMATS["text"].render(full_report).splitlines())) <= 104


def test_cyclic_log_below_its_working_set_is_named(tmp_path: Path) -> None:
    """20 prompts of 6 full blocks in turn, 5 times; the pool lacks a tenth of what they take."""
    prompts = [
        [*range(100 * p, 100 * p + 6), 1_000_000 + 100 * p + r] for r in range(5) for p in range(20)
    ]
    path = trace_file(tmp_path, prompts)

    report = plan([path], deployed(engine="vllm@0.33.0", capacity_blocks=108))

    [cliff] = report.cliffs
    assert cliff.hit_rate_below < 0.05 < 0.7 < cliff.hit_rate_above
    assert 108 < cliff.to_blocks <= 121
    assert any("cliff" in text and "short of its top" in text for text in report.findings)
    assert report.recommendation is not None
    assert report.recommendation.action.startswith("grow the pool from 108 to")


def test_case_b049_smallest_pool_with_full_reuse() -> None:
    expected = json.loads((CASES / "B049-two-sessions-take-turns" / "expected.json").read_bytes())
    log = CASES / "B049-two-sessions-take-turns" / "requests.jsonl"

    report = plan(
        [str(log)],
        deployed(engine="vllm@0.33.0", block_size=16, capacity_blocks=14),
        PlanOptions(capacities_blocks=(14, 40)),
    )

    answer = expected["answer"]
    tokens = report.num_prompt_tokens
    rates = {o.capacity_blocks: o.token_hit_rate for o in options_of(report, "capacity")}
    assert rates[14] == pytest.approx(sum(answer["hit_tokens_pool_14"]) / tokens)
    assert rates[40] == pytest.approx(sum(answer["hit_tokens_pool_40"]) / tokens)
    assert abs(report.enough_blocks - answer["smallest_pool_with_full_reuse"]) <= 3
    assert any("evicts what is asked for again" in text for text in report.findings)


def test_measured_throughput_needs_no_model(tmp_path: Path) -> None:
    """Requests a second apart at 100,000 tokens/s are alone: in time as one after another."""
    path = trace_file(tmp_path, conversations())

    report = plan(
        [path],
        deployed(engine="vllm@0.33.0", capacity_blocks=80),
        PlanOptions(measured=MeasuredEngine(prefill_tokens_per_s=100_000, step_s=0.001)),
    )

    [option] = [o for o in options_of(report, "capacity") if o.capacity_blocks == 80]
    assert option.timed is not None
    assert option.timed.token_hit_rate[0] == option.timed.token_hit_rate[1]
    assert option.timed.token_hit_rate[0] == pytest.approx(option.token_hit_rate or 0, abs=0.01)
    assert set(option.timed.peak_running) == {1.0}
    assert option.timed.queue.p99_s[1] == pytest.approx(0.0, abs=1e-6)


def test_twice_the_load_waits_longer(tmp_path: Path) -> None:
    path = trace_file(tmp_path, conversations(), gap_ms=60)
    slow = MeasuredEngine(prefill_tokens_per_s=30_000, step_s=0.01)

    queues = []
    for load in (1.0, 2.0):
        report = plan(
            [path],
            deployed(engine="vllm@0.33.0", capacity_blocks=200),
            PlanOptions(measured=slow, load=load, capacities_blocks=(200,)),
        )
        [option] = options_of(report, "capacity")
        assert option.timed is not None
        queues.append(option.timed.ttft.p95_s[1])

    assert queues[1] > queues[0]


GEMMA = DATA / "model-configs" / "gemma-3-27b-it"


def test_hybrid_model_with_a_trace_of_other_blocks_is_not_served_in_time(tmp_path: Path) -> None:
    path = trace_file(tmp_path, conversations())

    report = plan(
        [path],
        deployed(model_dir=GEMMA, engine="vllm@0.33.0", capacity_blocks=80),
        PlanOptions(gpus=(GpuChoice(name="h100-sxm"),)),
    )

    assert all(option.timed is None for option in report.options)
    assert any("blocks are of 16 tokens, the log's of 512" in note for note in report.notes)


def test_hybrid_model_is_simulated_with_its_groups(tmp_path: Path) -> None:
    """Gemma-3-27B: 62 layers make 7 groups of 10; a prompt of 128 tokens takes 8 blocks of each.

    Two prompts of 128 tokens and one more each come twice, a minute apart. In a pool of 126 blocks
    (2 * 9 * 7) both find all of their 128 tokens again, in one of 64 neither does.
    """
    log = tmp_path / "requests.jsonl"
    log.write_text(
        "".join(
            json.dumps(
                {
                    "request_id": f"r{number}",
                    "arrival_s": 1_772_438_400 + 60 * number,
                    "prompt_token_ids": [number % 2] * 128 + [7],
                }
            )
            + "\n"
            for number in range(4)
        )
    )

    report = plan(
        [str(log)],
        deployed(model_dir=GEMMA, engine="vllm@0.33.0", capacity_blocks=126),
        PlanOptions(
            gpus=(GpuChoice(name="h100-sxm"),), capacities_blocks=(64, 126), answer_tokens=1
        ),
    )

    rates = {o.capacity_blocks: o.token_hit_rate for o in options_of(report, "capacity")}
    assert rates[126] == pytest.approx(2 * 128 / (4 * 129))
    assert rates[64] == 0.0
    for option in options_of(report, "capacity"):
        assert option.timed is not None
        assert option.timed.token_hit_rate[0] == pytest.approx(option.token_hit_rate)
    assert any("7 KV groups" in note for note in report.notes)


def test_log_without_a_request_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": "x"}\n')

    report = plan([str(path)], deployed())

    assert report.exit_code == 3
    for name in FORMATS:
        assert FORMATS[name].render(report)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": (GpuChoice(name="h1000"),)}, "unknown GPU"),
        ({"tiers": (TierChoice(name="tape", gib=1.0),)}, "unknown tier"),
        ({"tiers": (TierChoice(name="cpu", gib=1.0),)}, "tiers need a GPU"),
        ({"policies": ("mru",)}, "policy to plan with"),
        ({"routings": ("sticky",)}, "unknown routing"),
        ({"load": 0.0}, "load"),
        ({"replicas": (0,)}, "replicas"),
        ({"block_sizes": (300,)}, "multiple"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    path = trace_file(tmp_path, conversations(3, 2))

    with pytest.raises(UsageError, match=words):
        plan([path], deployed(model_dir=LLAMA), PlanOptions(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("capacity_blocks", [0, 1])
def test_pool_without_room_serves_nobody_and_is_reported(
    tmp_path: Path, capacity_blocks: int
) -> None:
    path = trace_file(tmp_path, conversations(3, 2))

    report = plan(
        [path],
        deployed(engine="vllm@0.33.0", capacity_blocks=capacity_blocks),
        PlanOptions(
            measured=MeasuredEngine(prefill_tokens_per_s=10_000, step_s=0.01),
            capacities_blocks=(capacity_blocks or 1,),
            replicas=(2,),
            routings=("dynamo", "llm-d"),
        ),
    )

    timed = [option.timed for option in report.options if option.timed is not None]
    assert timed
    assert all(each.num_refused == report.num_requests for each in timed)
    for name in FORMATS:
        assert FORMATS[name].render(report)


def test_log_without_a_full_block_can_be_sampled(tmp_path: Path) -> None:
    path = trace_file(tmp_path, [[1], [2], [1]])

    report = plan([path], deployed(capacity_blocks=10), PlanOptions(sample=0.5))

    assert report.endless_hit_rate == 0.0
    assert report.recommendation is None


def test_target_that_prefill_alone_misses_is_explained(tmp_path: Path) -> None:
    """1,636 tokens at 1,000 tokens/s take more than 1 s, whoever serves them."""
    path = trace_file(tmp_path, conversations(3, 1), gap_ms=60_000)

    report = plan(
        [path],
        deployed(engine="vllm@0.33.0", capacity_blocks=100),
        PlanOptions(
            measured=MeasuredEngine(prefill_tokens_per_s=1_000, step_s=0.01), ttft_p95_s=0.5
        ),
    )

    assert report.recommendation is not None
    assert "none of the options meets" in report.recommendation.action
    assert any("without waiting" in reason for reason in report.recommendation.reasons)
