"""`analyze` as a user calls it: options, files, formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.running import Runner, case_folder, rows_of

SCHEMAS = Path(__file__).parent.parent.parent / "prefixaudit" / "schemas"
MODEL_CONFIGS = Path(__file__).parent.parent / "data" / "model-configs"


def _schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text())


def _conversation(path: Path, *, num_turns: int = 6, **fields: object) -> Path:
    """Write a log of one growing prompt of 40 tokens a turn, as plain ids."""
    lines = []
    for turn in range(1, num_turns + 1):
        body = {"model": "m", "prompt": list(range(40 * turn))}
        record = {"request_id": f"r{turn}", "path": "/v1/completions", "body": body, **fields}
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return _conversation(tmp_path / "log.jsonl")


def test_json_and_rows_match_their_schemas(cli: Runner, tmp_path: Path, log: Path) -> None:
    with log.open("a") as file:
        file.write("{broken\n")
    rows_file = tmp_path / "rows.jsonl"

    for options in (
        (),
        ("--model", MODEL_CONFIGS / "llama-3.1-8b", "--engine", "vllm@0.33.0"),
        ("--capacity-blocks", 5, "--engine", "sglang"),
    ):
        ran = cli("analyze", log, "-f", "json", "--per-request", rows_file, *options)

        assert ran.code == 0, ran.err
        jsonschema.validate(ran.json, _schema("report.schema.json"))
        for row in rows_of(rows_file):
            jsonschema.validate(row, _schema("per-request.schema.json"))


def test_schemas_forbid_what_they_should(cli: Runner, log: Path) -> None:
    report = cli("analyze", log, "-f", "json").json

    for path in (("totals", "token_hit_rate"), ("log", "num_skipped"), ("curve",)):
        broken = json.loads(json.dumps(report))
        inner = broken
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, _schema("report.schema.json"))


def test_figures_by_hand(cli: Runner, log: Path) -> None:
    """Prompts of 40, 80, … 240 tokens, each the start of the next, in 16-token blocks.

    Hits of turn t: floor(40 (t - 1) / 16) * 16 = 0, 32, 80, 112, 160, 192 = 576 of 840 tokens.
    The second half (turns 4 to 6) hits 464 of 600.
    """
    report = cli("analyze", log, "--block-size", 16, "-f", "json").json

    totals = report["totals"]
    assert totals["num_prompt_tokens"] == 840
    assert totals["num_cached_tokens"] == 576
    assert totals["token_hit_rate"] == pytest.approx(576 / 840)
    assert totals["request_hit_rate"] == pytest.approx(5 / 6)
    assert totals["second_half_token_hit_rate"] == pytest.approx(464 / 600)
    # Full blocks: floor(40 t / 16) = 2, 5, 7, 10, 12, 15 = 51.
    assert totals["block_hit_rate"] == pytest.approx(36 / 51)
    assert totals["mean_request_hit_rate"] == pytest.approx(
        (0 + 32 / 80 + 80 / 120 + 112 / 160 + 160 / 200 + 192 / 240) / 6
    )
    # Nearest rank of 0, 32, 80, 112, 160, 192: the third, the sixth, the sixth.
    assert [report["hit_length"][key] for key in ("p50", "p90", "p99", "max")] == [
        80,
        192,
        192,
        192,
    ]


def test_donors_add_up_and_name_earlier_requests(cli: Runner, tmp_path: Path, log: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"

    cli("analyze", log, "--block-size", 16, "--per-request", rows_file)

    rows = rows_of(rows_file)
    assert rows[2]["donors"] == [
        {"request_id": "r1", "num_tokens": 32},
        {"request_id": "r2", "num_tokens": 48},
    ]
    for row in rows:
        assert sum(donor["num_tokens"] for donor in row["donors"]) == row["num_cached_tokens"]


def test_gib_are_blocks_by_the_models_kv_bytes(cli: Runner, log: Path) -> None:
    """Llama-3.1-8B keeps 2 * 32 layers * 8 heads * 128 * 2 bytes = 131,072 bytes a token."""
    model = MODEL_CONFIGS / "llama-3.1-8b"

    report = cli(
        "analyze", log, "--block-size", 16, "--model", model, "--capacity-gib", 0.05, "-f", "json"
    ).json

    assert report["totals"]["kv_bytes_per_token"] == 131_072
    # 0.05 * 2**30 / (16 * 131,072) = 25.6
    assert report["pool"]["capacity_blocks"] == 25
    assert report["pool"]["capacity_bytes"] == 25 * 16 * 131_072


def test_unknown_model_type_costs_the_flops_only(cli: Runner, tmp_path: Path, log: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "abacus"}')

    report = cli("analyze", log, "--model", model, "-f", "json").json

    assert report["totals"]["num_cached_tokens"] > 0
    assert report["totals"]["prefill_flops"] is None
    assert "abacus" in report["model"]["problem"]
    assert len([note for note in report["notes"] if "abacus" in note]) == 1


def test_deployment_beside_the_log_is_used_and_named(cli: Runner, log: Path) -> None:
    file = log.parent / "prefixaudit.toml"
    file.write_text("[engine]\nblock_size = 32\n")

    ran = cli("analyze", log, "-f", "json")

    assert ran.json["pool"]["block_size"] == 32
    assert ran.json["deployment"] == str(file)
    assert ran.err == f"using {file}\n"


def test_options_win_over_the_file(cli: Runner, log: Path) -> None:
    (log.parent / "prefixaudit.toml").write_text("[engine]\nblock_size = 32\n")

    assert cli("analyze", log, "--block-size", 8, "-f", "json").json["pool"]["block_size"] == 8


def test_unknown_fields_are_counted(cli: Runner, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    one = {"path": "/v1/completions", "body": {"model": "m", "prompt": [1, 2, 3]}}
    log.write_text(f"{json.dumps({**one, 'tenant': 'acme'})}\n{json.dumps(one)}\n")

    report = cli("analyze", log, "-f", "json").json

    fields = {field["field"]: field["num_requests"] for field in report["unknown_fields"]}
    assert fields["lora_name"] == 2
    assert "model" not in fields
    assert report["log"]["num_tenants"] == 1
    assert fields["tenant"] == 1


def test_answers_enter_the_pool_unless_switched_off(cli: Runner, tmp_path: Path) -> None:
    """The second prompt is the first with its answer: 16 + 32 tokens of it, the last not cached."""
    log = tmp_path / "log.jsonl"
    first = {"model": "m", "prompt": list(range(16))}
    second = {"model": "m", "prompt": list(range(65))}
    log.write_text(
        json.dumps({"body": first, "output_token_ids": list(range(16, 49))})
        + "\n"
        + json.dumps({"body": second})
        + "\n"
    )

    def hits(setting: str) -> int:
        options = ("--block-size", 16, "--cache-generated", setting, "-f", "json")
        return int(cli("analyze", log, *options).json["totals"]["num_cached_tokens"])

    # 16 + 33 tokens, all but the last cached: 48, three blocks.
    assert hits("auto") == hits("on") == 48
    assert hits("off") == 16


def test_report_goes_to_a_file(cli: Runner, tmp_path: Path, log: Path) -> None:
    ran = cli("analyze", log, "-o", tmp_path / "report.txt")

    assert ran.out == ""
    assert (tmp_path / "report.txt").read_text().startswith("prefixaudit ")


def test_text_fits_a_hundred_columns(cli: Runner, log: Path) -> None:
    model = MODEL_CONFIGS / "llama-3.1-8b"

    text = cli("analyze", log, "--model", model, "--capacity-blocks", 9, "--engine", "vllm").out

    assert max(len(line) for line in text.splitlines()) <= 100
    assert "\x1b" not in text


def test_jobs_do_not_change_the_result(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B015")
    rows = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]

    for jobs, path in zip((1, 2), rows, strict=True):
        log = folder / "requests.jsonl"
        ran = cli("analyze", log, "--model", folder, "--jobs", jobs, "--per-request", path)
        assert ran.code == 0, ran.err

    assert rows[0].read_bytes() == rows[1].read_bytes()
