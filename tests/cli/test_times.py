"""The sections TIME and SAMPLES of `analyze`, against `cost` and figures worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import prefixaudit
from tests.cli.running import Runner

MODEL = Path(__file__).parent.parent / "data" / "model-configs" / "qwen3-8b"
OPTIONS = ("--engine", "vllm@0.33.0", "--model", MODEL, "--capacity-blocks", 4000)
GPU = ("--gpu", "h100-sxm", "--tp", 2, "--usd-per-gpu-hour", 3)
SCHEMA = Path(prefixaudit.__file__).parent / "schemas" / "report.schema.json"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two prompts of 8,192 tokens, of which the first 4,096 are equal."""
    path = tmp_path / "log.jsonl"
    first = list(range(8192))
    second = first[:4096] + list(range(10_000, 14_096))
    path.write_text(
        "".join(json.dumps({"prompt_token_ids": ids}) + "\n" for ids in (first, second))
    )
    return path


def test_times_are_those_of_cost(cli: Runner, log: Path) -> None:
    report = cli("analyze", log, *OPTIONS, *GPU, "-f", "json").json
    cost = cli(
        "cost", MODEL, "--prompt", 8192, "--cached", 4096, "--engine", "vllm@0.33.0", *GPU,
        "-f", "json",
    ).json["times"]  # fmt: skip

    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    time = report["time"]
    assert (time["gpu"], time["tensor_parallel"]) == ("H100 SXM", 2)
    # Both prompts are of one length, the first hits nothing, the second 4,096 tokens.
    assert time["ttft_cold"]["p90_s"] == pytest.approx(cost["ttft_cold_s"])
    assert time["gpu_s_prefill"] == pytest.approx([2 * s for s in cost["gpu_s_cold"]])
    assert time["gpu_s_saved"] == pytest.approx(cost["gpu_s_saved"])
    assert time["usd_saved"] == pytest.approx([s * 3 / 3600 for s in time["gpu_s_saved"]])
    assert (time["num_hits"], time["num_hits_too_short"]) == (1, 0)
    assert time["assumptions"] == cost["assumptions"]


def test_saturated_seconds_are_flops_by_the_share_of_the_peak(cli: Runner, log: Path) -> None:
    """0.40 to 0.75 of 989 TFLOPS in large batches (the bands of prefill from 2,048 tokens on)."""
    report = cli("analyze", log, *OPTIONS, *GPU, "-f", "json").json

    flops = report["totals"]["prefill_flops"]
    expected = [flops / (989e12 * 0.75), flops / (989e12 * 0.40)]
    assert report["time"]["gpu_s_prefill"] == pytest.approx(expected)


def test_text_shows_ranges_price_and_what_is_assumed(cli: Runner, log: Path) -> None:
    out = cli("analyze", log, *OPTIONS, *GPU).out

    section = out[out.index("TIME") : out.index("HIT LENGTH")]
    assert section.startswith("TIME  2 x H100 SXM, this pool")
    assert "USD   at 3.00 USD a GPU hour" in section
    assert "efficiency assumed, not measured (dense)" in section
    assert "0 of 1 are too short for it" in section
    assert max(len(line) for line in section.splitlines()) <= 100


def test_measured_throughput_replaces_the_band(cli: Runner, log: Path) -> None:
    report = cli(
        "analyze", log, *OPTIONS, "--gpu", "h100-sxm", "--measured", "20000@8192", "-f", "json"
    ).json

    assert any("from a measured 20,000 tokens/s" in text for text in report["time"]["assumptions"])
    # At the measured length it is what it is: 8,192 tokens in 0.41 s and the request's overhead.
    low, high = report["time"]["ttft_cold"]["p50_s"]
    assert low == pytest.approx(8192 / 20_000, abs=0.002)
    assert high == pytest.approx(8192 / 20_000 + 0.016, abs=0.003)


def test_hardware_of_the_deployment_file(cli: Runner, tmp_path: Path, log: Path) -> None:
    (tmp_path / "vllm.log").write_text("GPU KV cache size: 16,000 tokens\n")
    file = tmp_path / "prefixaudit.toml"
    file.write_text(
        f"""
        [model]
        path = "{MODEL}"
        [engine]
        name = "vllm"
        version = "0.33.0"
        [hardware]
        gpu = "h100-sxm"
        tensor_parallel = 2
        usd_per_gpu_hour = 3
        engine_log = "vllm.log"
        """
    )

    report = cli("analyze", log, "-f", "json").json
    over = cli("analyze", log, "--gpu", "h200", "-f", "json").json

    assert report["pool"]["capacity_blocks"] == 999
    assert (report["time"]["gpu"], report["time"]["usd_per_gpu_hour"]) == ("H100 SXM", 3)
    assert over["time"]["gpu"].startswith("H200")


def test_all_problems_of_a_hardware_table_are_named(cli: Runner, tmp_path: Path, log: Path) -> None:
    (tmp_path / "prefixaudit.toml").write_text(
        '[hardware]\ngpu = "h1000"\nmeasured = "fast"\nengine_log = "gone.log"\n'
    )

    ran = cli("analyze", log)

    assert ran.code == 2
    for text in (":2: ", "unknown GPU 'h1000'", ":3: ", "9800@8192", ":4: ", "can't be read"):
        assert text in ran.err


def test_several_samples_of_a_prompt_are_counted(cli: Runner, tmp_path: Path) -> None:
    """40 tokens in blocks of 16: two blocks are shared, the third each sample has for itself."""
    log = tmp_path / "log.jsonl"
    rows = [
        {"prompt_token_ids": list(range(40)), "num_samples": 4},
        {"prompt_token_ids": list(range(40)), "num_samples": 1},
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    report = cli("analyze", log, *OPTIONS, "-f", "json").json
    out = cli("analyze", log, *OPTIONS).out

    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    samples = report["samples"]
    assert samples["rows"] == [
        {
            "num_samples": 4,
            "num_requests": 1,
            "num_shared_blocks": 2,
            "num_private_copies": 3,
            "num_recomputed_tokens": 3 * 8,
        }
    ]
    assert samples["num_blocks_spared"] == 3 * 2
    assert "SAMPLES  1 request asks for 4 answers (n > 1)" in out


def test_log_without_samples_has_no_section(cli: Runner, log: Path) -> None:
    assert cli("analyze", log, *OPTIONS, "-f", "json").json["samples"] is None
    assert "SAMPLES" not in cli("analyze", log, *OPTIONS).out
