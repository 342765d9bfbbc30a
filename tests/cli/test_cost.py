"""`prefixaudit cost` and the lists beside it, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from prefixaudit.cli import run

CONFIGS = Path(__file__).parent.parent / "data" / "model-configs"
SCHEMAS = Path(__file__).parent.parent.parent / "prefixaudit" / "schemas"
LLAMA = str(CONFIGS / "llama-3.1-8b")


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_flops_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """8,192 tokens of Llama-3.1-8B, half of them cached: 46.7 % of the FLOPs, as published."""
    text = output(capsys, "cost", LLAMA, "--prompt", "8192", "--cached", "4096")

    assert "in all                     131.945    70.371  61.574  46.7%" in text
    assert "131,072 bytes (bfloat16)" in text
    assert "TIME" not in text


def test_config_with_infinity_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Published files of recurrent models have it in `time_step_limit`; JSON proper hasn't."""
    config = json.loads((CONFIGS / "nemotron-3-nano-30b-a3b" / "config.json").read_bytes())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    without = output(capsys, "cost", str(tmp_path))
    path.write_text(json.dumps({**config, "time_step_limit": [0.0, float("inf")]}))

    assert output(capsys, "cost", str(tmp_path)) == without


def test_text_fits_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for name in sorted(path.name for path in CONFIGS.iterdir()):
        text = output(
            capsys, "cost", str(CONFIGS / name), "--cached", "1000", "--gpu", "b300", "--tp", "8"
        )

        assert max(len(line) for line in text.splitlines()) <= 100


def test_times_come_with_their_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(
        capsys, "cost", LLAMA, "--cached", "4096", "--gpu", "h100-sxm", "--usd-per-gpu-hour", "3"
    )

    assert "dense peak 989 TFLOPS" in text
    assert "assumed, not measured" in text
    assert "177.9 to 334.7 ms" in text
    assert "USD a million such prompts" in text


def test_json_has_exact_flops(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(
        output(capsys, "cost", LLAMA, "--cached", "4096", "--gpu", "h100-sxm", "--format", "json")
    )

    assert values["schema_version"] == 1
    assert values["flops"]["cold_total"] == sum(values["flops"]["cold"].values())
    assert values["flops"]["saved"] == values["flops"]["cold_total"] - values["flops"]["hit_total"]
    assert values["pool"]["source"] == "estimate"
    assert values["times"]["prefill_cold_s"][0] < values["times"]["prefill_cold_s"][1]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--cached", "100", "--gpu", "l40s", "--tier", "nvme", "--usd-per-gpu-hour", "1"),
        ("--cached", "8191", "--gpu", "b300", "--lora-rank", "16", "--engine", "sglang"),
    ],
)
def test_json_matches_its_schema(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    schema = json.loads((SCHEMAS / "cost.schema.json").read_text())

    for name in ("llama-3.1-8b", "phi-3.5-mini-instruct", "qwen3.5-27b"):
        path = str(CONFIGS / name)
        if name == "qwen3.5-27b" and "l40s" in arguments:
            continue  # 54 GB of weights in 48 GB
        text = output(capsys, "cost", path, "--format", "json", *arguments)

        jsonschema.validate(json.loads(text), schema)


def test_engine_log_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO GPU KV cache size: 409,600 tokens\n")

    text = output(capsys, "cost", LLAMA, "--engine-log", str(log))

    assert "25,600 blocks, 409,600 tokens, 50.0 GiB (vllm, by the engine's log)" in text


def test_measured_throughput_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(
        capsys, "cost", LLAMA, "--gpu", "h100-sxm", "--measured", "30000@8192", "--cached", "16"
    )

    # 131.9 TFLOP a prompt at 30,000 tokens/s: 273 ms, 0.49 of the peak.
    assert "273.1 ms at 0.49 of the peak" in text
    assert "from a measured 30,000 tokens/s at 8,192 tokens" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LLAMA, "--cached", "8192"), "at least one token is always computed"),
        ((LLAMA, "--gpu", "h100"), "unknown GPU 'h100'"),
        ((LLAMA, "--tier", "cpu"), "--tier needs a GPU"),
        ((LLAMA, "--gpu", "l4", "--measured", "fast"), "9800@8192 is one"),
        ((LLAMA, "--gpu", "l4", "--efficiency", "0.9-0.4"), "0.4-0.6 is one"),
        ((LLAMA, "--gpu", "l4", "--engine", "trtllm"), "known: sglang, vllm"),
        (("no-such-folder",), "no-such-folder"),
    ],
)
def test_wrong_calls_are_explained(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in output(capsys, "cost", *arguments, code=2)


def test_unknown_model_type_is_refused_with_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "quen3"}')

    text = output(capsys, "cost", str(tmp_path), code=2)

    assert "unknown model type 'quen3'" in text
    assert "did you mean 'qwen3'?" in text


@pytest.mark.parametrize("content", ["", "[]", "{", '{"model_type": 1}', '{"model_type": "llama"'])
def test_broken_configs_are_refused_with_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    (tmp_path / "config.json").write_text(content)

    assert "config.json" in output(capsys, "cost", str(tmp_path), code=2)


def test_gpus_and_families_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "h100-nvl" in output(capsys, "list", "gpus")
    assert "kimi-linear" in output(capsys, "list", "families")
    assert "host link" in output(capsys, "list", "tiers")


def test_gpu_is_explained_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", "gpu:h100-nvl")

    assert "835.0 TFLOPS, dense" in text
    assert "not read again" in text


@pytest.mark.parametrize("engine", ["trtllm", "vlm@0.33.0"])
def test_engine_without_a_rule_is_refused_with_or_without_a_gpu(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    assert "known: sglang, vllm" in output(capsys, "cost", LLAMA, "--engine", engine, code=2)
