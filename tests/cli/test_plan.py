"""`prefixaudit plan` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Runner, case_folder

LLAMA = Path(__file__).parents[1] / "data" / "model-configs" / "llama-3.1-8b"
LOG = case_folder("B049") / "requests.jsonl"
HERE = ("--engine", "vllm@0.33.0", "--block-size", 16, "--capacity-blocks", 14)


def test_report_recommends_and_says_why(cli: Runner) -> None:
    ran = cli("plan", LOG, *HERE)

    assert ran.code == 0
    assert "RECOMMENDED  grow the pool from 14 to 22 blocks" in ran.out
    assert "RESTS ON" in ran.out
    assert "nothing was served in time" in ran.out


def test_in_time_with_measured_throughput(cli: Runner) -> None:
    ran = cli(
        "plan", LOG, *HERE, "--throughput", "9800,12", "--answer-tokens", 1, "--format", "json"
    )

    rows = [row for row in ran.json["options"] if row["capacity_blocks"] == 14]
    assert rows[0]["timed"]["token_hit_rate"] == [rows[0]["token_hit_rate"]] * 2


def test_every_option_at_once(cli: Runner, tmp_path: Path) -> None:
    output = tmp_path / "plan.csv"

    ran = cli(
        "plan", LOG, *HERE,
        "--model", LLAMA, "--gpus", "h100-sxm,h200:2", "--kv-cache-dtypes", "auto,fp8",
        "--capacities", "14,40", "--block-sizes", "16,32", "--policies", "lru,belady",
        "--tiers", "cpu:64,nvme:100blocks", "--tier-writes", "on-eviction", "--no-promote",
        "--replicas", "2", "--routing", "round-robin,session,dynamo", "--isolation",
        "--load", 2, "--ttft-p95", 1.5, "--usd-per-gpu-hour", 2, "--sample", 0.5,
        "--efficiency", "0.4-0.6", "--jobs", 2, "--format", "csv", "--output", output,
    )  # fmt: skip

    assert (ran.code, ran.out) == (0, "")
    sweeps = {line.partition(",")[0] for line in output.read_text().splitlines()[1:]}
    assert sweeps == {"capacity", "block-size", "policy", "hardware", "tiers", "replicas"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--capacities", "10,x"), "--capacities: 'x' can't be read"),
        (("--throughput", "fast"), "9800,12"),
        (("--measured", "9800"), "9800@8192"),
        (("--efficiency", "0.9-0.4"), "0.4-0.6"),
        (("--tiers", "cpu:-1"), "--tiers"),
        (("--gpus", "h100-sxm"), "--model"),
        (("--policies", "best"), "unknown policy to plan with 'best'"),
        (("--replicas", "0"), "--replicas"),
        (("--format", "xml"), "xml"),
    ],
)
def test_wrong_options_exit_2(cli: Runner, arguments: tuple[str, ...], words: str) -> None:
    ran = cli("plan", LOG, *HERE, *arguments)

    assert ran.code == 2
    assert words in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ((), ("round-robin: one after", "first 4 blocks", "1 x blocks to compute + 1 x blocks")),
        (("--routing", "llm-d"), ("best of 3 x prefix + 2 x queue + 2 x KV use",)),
    ],
)
def test_routings_are_compared_under_stated_parameters(
    cli: Runner, asked: tuple[str, ...], named: tuple[str, ...]
) -> None:
    ran = cli("plan", LOG, *HERE, "--replicas", "2", "--throughput", "9800,12", *asked)

    text = " ".join(ran.out.split())
    assert all(words in text for words in named)


def test_log_of_nothing_exits_3(cli: Runner, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"prompt_token_ids": "x"}) + "\n")

    ran = cli("plan", log, "--log-format", "tokens")

    assert ran.code == 3
    assert "INCOMPLETE" in ran.out


def test_most_blocks_shared_at_once_and_by_how_many(cli: Runner, tmp_path: Path) -> None:
    """Twelve requests at once begin with the same 3,200 tokens: 200 blocks of 16."""
    log = tmp_path / "shared.jsonl"
    rows = [
        {
            "arrival_s": 1000 + 0.01 * number,
            "prompt_token_ids": [*range(3200), *range(5000 + 50 * number, 5050 + 50 * number)],
            "num_completion_tokens": 200,
        }
        for number in range(12)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    out = cli(
        "plan", log, "--engine", "vllm@0.33.0", "--capacity-blocks", 4000,
        "--throughput", "20000,10",
    ).out  # fmt: skip

    assert "most at once: 200 blocks shared by two or more of 12 running requests" in out
