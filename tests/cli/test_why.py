"""`prefixaudit why`: what it prints, and what it never prints."""

from __future__ import annotations

import io
import json
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from tests.cli.running import Runner, case_folder


def test_two_requests_side_by_side(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", "req-000", "req-001", "--model", folder)

    assert ran.code == 0
    assert "tokens 0 … 43              equal\n" in ran.out
    assert "token  44                  messages[0].content, character 42: a clock\n" in ran.out
    assert "2 of 28 blocks hit (32 tokens, of the two alone)" in ran.out


def test_requests_can_be_named_by_line(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", 1, 2, "--model", folder, "--format", "json")

    values = ran.json
    assert values["schema_version"] == 1
    assert values["earlier"]["request_id"] == "req-000"
    assert values["later"]["request_id"] == "req-001"
    assert values["num_shared_tokens"] == 44
    assert values["kind"] == "clock"
    assert values["num_hit_tokens"] == 32


def test_one_request_against_the_log_before_it(cli: Runner) -> None:
    folder = case_folder("B015")

    ran = cli("why", folder / "requests.jsonl", "req-003", "--model", folder, "-f", "json")

    values = ran.json
    assert values["earlier"]["request_id"] == "req-002"
    assert values["kind"] == "window-slides"
    assert values["num_hit_tokens"] == 320  # of the whole log before it, by the case's answer


def test_text_is_printed_when_asked_only(cli: Runner) -> None:
    folder = case_folder("B001")
    arguments = ("why", folder / "requests.jsonl", "req-000", "req-001", "--model", folder)

    assert "Lindhaven" not in cli(*arguments).out
    assert "Lindhaven" not in cli(*arguments, "--format", "json").out
    assert "Lindhaven" not in cli("why", folder / "requests.jsonl", "--model", folder).out
    assert "Lindha" in cli(*arguments, "--show-text").out


def test_colour_marks_both_sides(cli: Runner) -> None:
    folder = case_folder("B001")
    arguments = ("why", folder / "requests.jsonl", "1", "2", "--model", folder, "--show-text")

    assert "\x1b[31m" in cli(*arguments, "--color", "always").out
    assert "\x1b" not in cli(*arguments).out


def test_another_key_is_said_first(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B001")
    lines = (folder / "requests.jsonl").read_text().splitlines()[:2]
    lines[1] = (
        lines[0]
        .replace("req-000", "req-001")
        .replace('"max_tokens"', '"cache_salt": "pepper", "max_tokens"')
    )
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines))

    ran = cli("why", log, "req-000", "req-001", "--model", folder)

    assert "another key: cache_salt differ" in ran.out
    assert "pepper" not in ran.out
    assert "0 of 25 blocks hit" in ran.out


def test_whole_log_with_replayed_repairs(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", "--model", folder)

    assert ran.code == 0
    assert "WHERE THE OTHER 95.05 % GOES" in ran.out
    assert "fault clock: 3 of 4 requests at messages[0].content" in ran.out
    assert "+1,040 cached" in ran.out


def test_without_repairs_the_figure_is_a_bound(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", "--model", folder, "--no-repairs", "-f", "json")

    [cause] = ran.json["causes"]
    assert cause["what_if"] is None
    assert "up to 1,247 prompt tokens" in cause["advice"]


def test_request_that_is_not_there(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", "req-999", "--model", folder)

    assert ran.code == 2
    assert "no request 'req-999'" in ran.err


def test_request_without_a_relative(cli: Runner) -> None:
    folder = case_folder("B001")

    ran = cli("why", folder / "requests.jsonl", "req-000", "--model", folder)

    assert ran.code == 2
    assert "shares nothing with an earlier one" in ran.err


def test_log_of_block_ids_has_a_waterfall(cli: Runner) -> None:
    folder = case_folder("B054")

    ran = cli("why", folder / "trace.jsonl", "-f", "json")

    values = ran.json
    places = values["waterfall"]["places"]
    total = sum(place["num_tokens"] for place in places)
    assert total == values["waterfall"]["num_prompt_tokens"]
    assert values["causes"] == []
    assert any("block ids" in note for note in values["notes"])


def test_tokens_of_a_log_of_block_ids_cannot_be_compared(cli: Runner) -> None:
    folder = case_folder("B054")

    ran = cli("why", folder / "trace.jsonl", "1", "2")

    assert ran.code == 2
    assert "no tokens to compare" in ran.err


def test_report_has_the_reasons(cli: Runner) -> None:
    folder = case_folder("B007")

    ran = cli("analyze", folder / "batch_input.jsonl", "--model", folder, "--format", "json")

    why = ran.json["why"]
    [cause] = why["causes"]
    assert cause["kind"] == "tool-order"
    assert cause["requests"] == [2]
    assert cause["first_request_ids"] == ["job-2"]
    assert why["waterfall"]["num_prompt_tokens"] == ran.json["totals"]["num_prompt_tokens"]


@pytest.mark.parametrize("requests", [(), ("req-000", "req-001"), ("req-002",)])
def test_json_is_as_its_schema_says(cli: Runner, requests: tuple[str, ...]) -> None:
    folder = case_folder("B001")
    path = resources.files("prefixaudit") / "schemas" / "why.schema.json"
    schema = json.loads(path.read_bytes())

    ran = cli("why", folder / "requests.jsonl", *requests, "--model", folder, "-f", "json")

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(ran.json)


def test_what_is_exported_has_a_waterfall(cli: Runner, tmp_path: Path) -> None:
    """An export has no text: what its log had seen behind another beginning counts as new."""
    folder = case_folder("B001")
    trace = tmp_path / "trace.npz"
    exported = cli("export", folder / "requests.jsonl", "--model", folder, "-o", trace)
    assert exported.code == 0, exported.err

    values = cli("analyze", trace, "--block-size", 16, "-f", "json").json

    places = {p["name"]: p["num_tokens"] for p in values["why"]["waterfall"]["places"]}
    assert sum(places.values()) == values["totals"]["num_prompt_tokens"] == 1_939
    assert places["reused"] == 96
    assert places["unstable-prefix"] == 0


def test_without_why(cli: Runner) -> None:
    folder = case_folder("B001")
    log = folder / "requests.jsonl"

    assert cli("analyze", log, "--model", folder, "--no-why", "-f", "json").json["why"] is None
    assert "WHERE THE OTHER" not in cli("analyze", log, "--model", folder, "--no-why").out


def test_what_if_in_analyze(cli: Runner) -> None:
    folder = case_folder("B007")

    ran = cli("analyze", folder / "batch_input.jsonl", "--model", folder, "--what-if", "-f", "json")

    [cause] = ran.json["why"]["causes"]
    assert cause["what_if"]["num_cached_tokens"] == 3 * 992


def test_processes_do_not_change_the_reasons(cli: Runner) -> None:
    folder = case_folder("B015")
    arguments = ("analyze", folder / "requests.jsonl", "--model", folder, "-f", "json")

    assert cli(*arguments, "--jobs", 2).json["why"] == cli(*arguments, "--jobs", 1).json["why"]


def test_repairs_of_a_log_on_stdin_are_not_replayed(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = case_folder("B001")
    with (folder / "requests.jsonl").open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        values = cli("why", "-", "--model", folder, "-f", "json").json

    assert values["causes"][0]["what_if"] is None
    assert any("can't be read twice" in note for note in values["notes"])


def test_two_servers_of_one_key(cli: Runner, tmp_path: Path) -> None:
    """The same prompt goes to either server in turn: the other one's pool would have hit."""
    folder = case_folder("B001")
    line = json.loads((folder / "requests.jsonl").read_text().splitlines()[0])
    log = tmp_path / "log.jsonl"
    records = [{**line, "request_id": f"r{n}", "node": "ab"[n % 2]} for n in range(4)]
    log.write_text("\n".join(map(json.dumps, records)))
    deployment = tmp_path / "prefixaudit.toml"
    deployment.write_text(
        f"""
        [model]
        path = "{folder}"
        [engine]
        name = "vllm"
        version = "0.33.0"
        block_size = 16
        [[server]]
        name = "a"
        match = {{ source = "field:node", values = ["a"] }}
        [[server]]
        name = "b"
        match = {{ source = "field:node", values = ["b"] }}
        """
    )

    ran = cli("analyze", log, "--deployment", deployment, "-f", "json")

    waterfall = ran.json["why"]["waterfall"]
    places = {place["name"]: place["num_tokens"] for place in waterfall["places"]}
    # 406 tokens: the first is new, the second was on the other server (25 blocks), two hit.
    assert waterfall["replicas_are_modelled"]
    assert places["other-replica"] == 400
    assert places["reused"] == 800
    assert places["new-text"] == 406
    assert places["partial-block"] == 3 * 6
