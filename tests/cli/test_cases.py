"""Cases after public bug reports: prompt lengths and hits of each request, by the whole command.

The expected figures stand in each case's expected.json; they are right by reasoning (see its
`reason`), not taken from any tool.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Runner, case_folder, rows_of


def _answer(folder: Path) -> Any:
    return json.loads((folder / "expected.json").read_text())["answer"]


def _rows(cli: Runner, tmp_path: Path, folder: Path, *options: object) -> list[dict[str, Any]]:
    [log] = list(folder.glob("*.jsonl"))
    model = ("--model", folder) if (folder / "tokenizer.json").exists() else ()
    rows = tmp_path / "rows.jsonl"
    ran = cli("analyze", log, *model, "--block-size", 16, "--per-request", rows, *options)
    assert ran.code == 0, ran.err
    return rows_of(rows)


@pytest.mark.parametrize("name", ["B001", "B003", "B004", "B006", "B007", "B009", "B015", "B017"])
def test_prompt_lengths_and_hits(cli: Runner, tmp_path: Path, name: str) -> None:
    folder = case_folder(name)

    rows = _rows(cli, tmp_path, folder)

    expected = [(row["prompt_tokens"], row["hit_tokens"]) for row in _answer(folder)["requests"]]
    assert [(row["num_prompt_tokens"], row["num_cached_tokens"]) for row in rows] == expected


@pytest.mark.parametrize("name", ["B012", "B013"])
def test_hits(cli: Runner, tmp_path: Path, name: str) -> None:
    folder = case_folder(name)

    rows = _rows(cli, tmp_path, folder)

    assert [row["num_cached_tokens"] for row in rows] == _answer(folder)["hit_tokens"]


@pytest.mark.parametrize(
    ("engine", "answer"),
    [("vllm@0.17.1", "hit_tokens"), ("vllm@0.20.2", "hit_tokens_with_header_stripped")],
)
def test_release_decides_whether_a_billing_header_is_seen(
    cli: Runner, tmp_path: Path, engine: str, answer: str
) -> None:
    folder = case_folder("B013")

    rows = _rows(cli, tmp_path, folder, "--engine", engine)

    assert [row["num_cached_tokens"] for row in rows] == _answer(folder)[answer]


def test_last_token_is_computed_even_on_a_repeat(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B041")

    rows = _rows(cli, tmp_path, folder)

    repeats = [(row["num_prompt_tokens"], row["num_cached_tokens"]) for row in rows[1::2]]
    assert repeats == [
        (row["prompt_tokens"], row["cached_tokens_on_repeat"])
        for row in _answer(folder)["per_length"]
    ]


@pytest.mark.parametrize("engine", [(), ("--engine", "vllm@0.23.0"), ("--engine", "vllm@0.33.0")])
@pytest.mark.parametrize("capacity", [14, 40])
def test_two_sessions_in_a_small_pool(
    cli: Runner, tmp_path: Path, capacity: int, engine: tuple[str, ...]
) -> None:
    folder = case_folder("B049")

    rows = _rows(cli, tmp_path, folder, "--capacity-blocks", capacity, *engine)

    expected = _answer(folder)[f"hit_tokens_pool_{capacity}"]
    assert [row["num_cached_tokens"] for row in rows] == expected


def test_curve_finds_the_smallest_pool_with_full_reuse(cli: Runner) -> None:
    folder = case_folder("B049")

    report = cli("analyze", folder / "requests.jsonl", "--block-size", 16, "-f", "json").json

    [point] = [point for point in report["curve"] if "endless" in point["marks"]]
    assert point["capacity_blocks"] == _answer(folder)["smallest_pool_with_full_reuse"]


def test_definitions_of_a_trace_are_told_apart(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B054")

    ran = cli("analyze", folder / "trace.jsonl", "--block-size", 16, "--format", "json")

    answer = _answer(folder)
    report = ran.json
    ids = report["trace_ids"]
    assert ids["id_hit_rate"] == pytest.approx(answer["block_ratio_ids"], abs=1e-4)
    assert report["totals"]["token_hit_rate"] == pytest.approx(
        answer["token_ratio_block_512"], abs=1e-4
    )
    assert ids["min_token_hit_rate"] == pytest.approx(answer["token_ratio_block_16_min"], abs=1e-4)
    assert ids["max_token_hit_rate"] == pytest.approx(answer["token_ratio_block_16_max"], abs=1e-4)
