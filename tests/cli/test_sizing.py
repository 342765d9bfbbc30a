"""`analyze` and the size of pool and blocks: the model's, the engine's log's, a GPU's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Runner, case_folder, rows_of

MODEL_CONFIGS = Path(__file__).parent.parent / "data" / "model-configs"

# Qwen3.5-4B's attention and state layers: vLLM's block is 528 tokens (vllm-project/vllm#40696).
HYBRID = {
    "model_type": "qwen3_5_text",
    "hidden_size": 2560,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "intermediate_size": 9216,
    "vocab_size": 248320,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "mamba_ssm_dtype": "float32",
    "dtype": "bfloat16",
}


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


def model_of(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def cached_tokens(cli: Runner, log: Path, rows: Path, *options: object) -> list[int]:
    cli("analyze", log, "--engine", "vllm@0.33.0", *options, "--per-request", rows)
    return [row["num_cached_tokens"] for row in rows_of(rows)]


@pytest.mark.parametrize("source", ["engine-log", "model"])
def test_case_b047_hits_in_blocks_of_528(cli: Runner, tmp_path: Path, source: str) -> None:
    folder = case_folder("B047")
    expected = json.loads((folder / "expected.json").read_text())["answer"]
    requests = folder / "requests.jsonl"
    options: tuple[object, ...] = ("--engine-log", folder / "vllm.log")
    if source == "model":
        options = ("--model", model_of(tmp_path / "model", HYBRID))

    report = cli("analyze", requests, "--engine", "vllm@0.33.0", *options, "-f", "json").json
    hits = cached_tokens(cli, requests, tmp_path / "rows", *options)
    believed = cached_tokens(cli, requests, tmp_path / "believed", *options, "--block-size", 16)

    assert (report["pool"]["block_size"], report["pool"]["block_size_origin"]) == (528, source)
    assert hits == expected["hit_tokens"]
    assert believed == expected["hit_tokens_if_block_were_16"]


def test_block_size_given_for_a_hybrid_is_taken_and_doubted(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    model = model_of(tmp_path / "model", HYBRID)

    report = cli(
        "analyze", log, "--engine", "vllm", "--model", model, "--block-size", 16, "-f", "json"
    ).json

    assert report["pool"]["block_size"] == 16
    assert any("would raise them to 528" in note for note in report["notes"])


def test_gib_of_a_hybrid_pool_are_blocks_of_all_its_groups(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    """A page is 528 tokens of 2 * 4 heads * 256 * 2 bytes; 32 layers are four groups of eight.

    528 * 4,096 * 32 = 69,206,016 bytes a prefix block; 2 GiB hold 31 of them.
    """
    model = model_of(tmp_path / "model", HYBRID)

    report = cli(
        "analyze", log, "--engine", "vllm", "--model", model, "--capacity-gib", 2, "-f", "json"
    ).json

    assert report["pool"]["capacity_blocks"] == 31
    assert report["pool"]["capacity_bytes"] == 31 * 69_206_016


def test_pool_of_the_engines_log_wins_over_the_estimate(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    engine_log = tmp_path / "vllm.log"
    engine_log.write_text("INFO [kv_cache_utils.py:1] GPU KV cache size: 16,000 tokens\n")
    options = ("--engine", "vllm", "--model", MODEL_CONFIGS / "qwen3-8b", "--gpu", "h100-sxm")

    pool = cli("analyze", log, *options, "--engine-log", engine_log, "-f", "json").json["pool"]
    given = cli(
        "analyze", log, *options, "--engine-log", engine_log, "--capacity-blocks", 7, "-f", "json"
    ).json["pool"]

    # 16,000 / 16 blocks, one of which is vLLM's null block.
    assert (pool["capacity_blocks"], pool["capacity_origin"]) == (999, "engine-log")
    assert pool["capacity_range_blocks"] is None
    assert (given["capacity_blocks"], given["capacity_origin"]) == (7, "deployment")


def test_gpu_without_a_size_estimates_the_pool_and_simulates_its_smaller_end(
    cli: Runner, log: Path
) -> None:
    """79.3 GiB * 0.92 - 15.26 GiB of weights - 8 GiB of overhead leave 49.7 GiB.

    At 2 * 36 layers * 8 heads * 128 * 2 bytes a token that is 22,618 blocks, one of them null.
    """
    report = cli(
        "analyze", log, "--engine", "vllm@0.33.0", "--model", MODEL_CONFIGS / "qwen3-8b",
        "--gpu", "h100-sxm", "-f", "json",
    ).json  # fmt: skip

    pool = report["pool"]
    low, high = pool["capacity_range_blocks"]
    assert (pool["capacity_blocks"], pool["capacity_origin"]) == (low, "estimate")
    assert low == 22_617
    assert high > low
    assert any("the smaller end is simulated" in note for note in report["notes"])


def test_unknown_type_that_names_its_kv_gives_bytes_but_no_flops(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    """2 * 4 layers * 2 heads * 64 * 2 bytes are 2,048 a token: 1 MiB is 32 blocks of 16."""
    config = {
        "model_type": "abacus",
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": None,
        "dtype": "bfloat16",
    }
    model = model_of(tmp_path / "model", config)

    report = cli(
        "analyze", log, "--engine", "vllm", "--model", model, "--capacity-gib", 2**-10,
        "--gpu", "h100-sxm", "-f", "json",
    ).json  # fmt: skip

    assert report["model"]["kv_bytes_per_token"] == 2048
    assert report["pool"]["capacity_blocks"] == 32
    assert report["totals"]["prefill_flops"] is None
    assert report["time"] is None
    assert any(note.startswith("FLOPs and seconds aren't given:") for note in report["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpu", "h1000"), "unknown GPU 'h1000'"),
        (("--gpu", "h100-sxm", "--tp", "3"), "3 GPUs can't share 32 attention heads evenly"),
        (("--usd-per-gpu-hour", "3"), "--usd-per-gpu-hour needs a GPU"),
        (("--gpu", "h100-sxm", "--measured", "fast"), "9800@8192 is one"),
        (("--gpu", "h100-sxm", "--efficiency", "0.9-0.1"), "0.4-0.6 is one"),
        (("--gpu", "h100-sxm", "--measured", "99999999@8192"), "of the dense peak"),
        (("--engine-log", "gone.log"), "gone.log: can't be read"),
    ],
)
def test_wrong_hardware_is_refused(
    cli: Runner, log: Path, options: tuple[str, ...], message: str
) -> None:
    ran = cli("analyze", log, "--model", MODEL_CONFIGS / "qwen3-8b", "--engine", "vllm", *options)

    assert ran.code == 2
    assert message in ran.err


def test_engine_log_without_a_line_of_the_pool_is_refused(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    (tmp_path / "vllm.log").write_text("INFO loading weights\n")

    ran = cli("analyze", log, "--engine", "vllm", "--engine-log", tmp_path / "vllm.log")

    assert ran.code == 2
    assert "no line about the KV cache" in ran.err


def test_weights_that_do_not_fit_are_refused(cli: Runner, log: Path) -> None:
    model = MODEL_CONFIGS / "llama-3.1-70b"

    ran = cli("analyze", log, "--engine", "vllm", "--model", model, "--gpu", "h100-sxm")

    assert ran.code == 2
    assert "leave no room for KV on 1 x H100 SXM" in ran.err


def test_releases_differ_where_their_eviction_does_and_the_report_says_which(
    cli: Runner, tmp_path: Path
) -> None:
    """Four blocks; a (33 tokens), b, c (17 each), a again: by hand.

    Up to 0.23 freed tails queue behind: c takes both blocks of a. From 0.24 b's tail is taken
    first, so c takes one of them and a's first block is left.
    """
    log = tmp_path / "log.jsonl"
    prompts = [range(33), range(100, 117), range(200, 217), range(33)]
    log.write_text("".join(json.dumps({"prompt_token_ids": list(ids)}) + "\n" for ids in prompts))
    hits, texts = [], []
    for version in ("0.23.0", "0.24.0"):
        ran = cli(
            "analyze", log, "--engine", f"vllm@{version}", "--capacity-blocks", 4,
            "--per-request", tmp_path / "rows",
        )  # fmt: skip
        hits.append([row["num_cached_tokens"] for row in rows_of(tmp_path / "rows")])
        texts.append(" ".join(ran.out.split()))

    assert hits == [[0, 0, 0, 0], [0, 0, 0, 16]]
    assert "vllm 0.23.0 block pool: freed blocks without a hash go to the back" in texts[0]
    assert "vllm 0.24.0 block pool: freed blocks without a hash go to the front" in texts[1]


@pytest.mark.parametrize("audit", ["--audit", "--no-audit"])
@pytest.mark.parametrize(("version", "hits"), [("0.5.17", [0, 63]), ("0.5.23", [0, 0])])
def test_sglang_joined_salt_and_extra_key_up_to_0_5_17(
    cli: Runner, tmp_path: Path, audit: str, version: str, hits: list[int]
) -> None:
    log = tmp_path / "log.jsonl"
    ids = list(range(64))
    rows = [
        {"prompt_token_ids": ids, "cache_salt": "ab", "extra_key": "c"},
        {"prompt_token_ids": ids, "cache_salt": "a", "extra_key": "bc"},
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    cli("analyze", log, "--engine", f"sglang@{version}", audit, "--per-request", tmp_path / "rows")

    assert [row["num_cached_tokens"] for row in rows_of(tmp_path / "rows")] == hits


def test_trace_in_smaller_blocks_than_the_engines_is_doubted(cli: Runner, tmp_path: Path) -> None:
    log = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": number, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2 + number]}
        for number in range(3)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = model_of(tmp_path / "model", HYBRID)

    report = cli("analyze", log, "--engine", "vllm", "--model", model, "-f", "json").json

    assert report["pool"]["block_size"] == 512
    assert any("an engine hits less than shown" in note for note in report["notes"])


def test_estimate_of_several_servers_is_that_of_all_their_pools(
    cli: Runner, tmp_path: Path, log: Path
) -> None:
    model = MODEL_CONFIGS / "qwen3-8b"
    file = tmp_path / "two.toml"
    file.write_text(
        f"""
        [engine]
        name = "vllm"
        version = "0.33.0"
        [model]
        path = "{model}"
        [hardware]
        gpu = "h100-sxm"
        [[server]]
        name = "a"
        [[server]]
        name = "b"
        """
    )

    pool = cli("analyze", log, "-d", file, "-f", "json").json["pool"]

    assert pool["capacity_blocks"] == 2 * 22_617
    assert pool["capacity_range_blocks"][0] == 2 * 22_617
