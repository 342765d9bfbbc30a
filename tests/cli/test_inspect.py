"""`prefixaudit inspect`: what is in a log, and what can be said of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import prefixaudit
from tests.cli.running import Runner, case_folder

SCHEMAS = Path(prefixaudit.__file__).parent / "schemas"


def write(path: Path, *records: Any) -> Path:
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def chat(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-03-02T08:00:{number:02}Z", "request_id": f"r{number}",
        "headers": {"X-Team": f"secret-team-{number % 2}"},
        "body": {
            "model": "harbor-8b", "cache_salt": "secret-salt",
            "messages": [{"role": "user", "content": "secret-text"}],
        },
        "response": {"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}, **fields,
    }  # fmt: skip


def field(values: Any, name: str) -> Any:
    [found] = [item for item in values["fields"] if item["field"] == name]
    return found


def test_fields_are_present_absent_or_unknown(cli: Runner, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", chat(0), chat(1), chat(2))

    values = cli("inspect", log, "--format", "json").json

    assert values["num_requests"] == 3
    assert values["prompt_kinds"] == [["chat messages", 3]]
    model, salt, cached = (field(values, n) for n in ("model", "cache_salt", "num_cached_tokens"))
    assert (model["num_present"], model["constant"]) == (3, "harbor-8b")
    assert (salt["num_present"], salt["num_values"], salt["constant"]) == (3, 1, None)
    assert (cached["num_present"], cached["num_absent"]) == (0, 3), "null isn't zero"
    assert field(values, "tenant")["num_unknown"] == 3
    assert values["headers"] == [["x-team", 2]]
    assert values["times"]["last_s"] - values["times"]["first_s"] == 2
    [file] = values["files"]
    assert file["format"] == "openai"
    assert file["claims"][0][0] == "openai"


def test_json_is_as_its_schema_says(cli: Runner, tmp_path: Path) -> None:
    schema = json.loads((SCHEMAS / "inspect.schema.json").read_bytes())
    log = write(tmp_path / "log.jsonl", chat(0), "{broken}", {"prompt_token_ids": [1]})
    (tmp_path / "empty.jsonl").touch()

    for path in (log, case_folder("B039"), tmp_path):
        values = cli("inspect", path, "--format", "json").json
        jsonschema.Draft202012Validator(schema).validate(values)
        assert set(values) == set(schema["required"])


def test_nothing_private_is_printed(cli: Runner, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", chat(0), chat(1))

    for output_format in ("text", "json"):
        ran = cli("inspect", log, "--format", output_format)

        assert "secret" not in ran.out + ran.err


def test_what_cannot_be_said_is_said(cli: Runner, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", chat(0), chat(1))

    out = " ".join(cli("inspect", log).out.split())

    assert "openai, 90 % sure" in out
    assert "2 hold their prompt as text" in out.replace("requests ", "")
    assert "2 requests without a tenant" in out
    assert "a header may tell: x-team" in out
    assert "null cached tokens of 2 requests" in out


def test_lengths_alone_give_no_reuse(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n")

    out = " ".join(cli("inspect", path).out.split())

    assert "length only" in out
    assert "no cache can be simulated" in out


def test_damage_is_counted_by_kind_with_its_first_place(cli: Runner, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", chat(0), "{broken}", '{"a": ', chat(1), "{broken}")

    values = cli("inspect", log, "--format", "json").json

    damage = {item["kind"]: (item["num_records"], item["first"]) for item in values["skipped"]}
    assert damage == {"invalid-json": (2, f"{log}:2"), "cut-line": (1, f"{log}:3")}
    [file] = values["files"]
    assert file["num_records"] == file["num_requests"] + file["num_skipped"] == 5


def test_clocks_that_disagree_and_times_out_of_order_are_counted(
    cli: Runner, tmp_path: Path
) -> None:
    later = [chat(number, timestamp=f"2026-03-02T08:00:{number:02}Z") for number in (5, 3, 4)]
    wrong = chat(9, timestamp="1970-01-02T00:00:00Z")
    log = write(tmp_path / "log.jsonl", *later, wrong, {**chat(10), "timestamp": None})

    times = cli("inspect", log, "--format", "json").json["times"]

    assert times["num_known"] == 4
    assert times["num_backwards"] == 2
    assert times["num_far"] == 1


def test_repeated_ids_and_media_are_counted(cli: Runner, tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000}}
    body = {"model": "m", "messages": [{"role": "user", "content": [image]}]}
    log = write(tmp_path / "log.jsonl", chat(0, body=body), chat(0), chat(0))

    values = cli("inspect", log, "--format", "json").json

    assert values["num_repeated_ids"] == 2
    assert values["num_media"] == 1
    assert values["num_large"] == 1
    assert "AAAA" not in json.dumps(values)


@pytest.mark.parametrize("jobs", [1, 2])
def test_files_side_by_side_give_the_same(cli: Runner, tmp_path: Path, jobs: int) -> None:
    first = write(tmp_path / "a.jsonl", chat(0), chat(1))
    second = write(tmp_path / "b.jsonl", chat(1), chat(2, headers={}))
    (tmp_path / "c.jsonl").write_bytes(b"not a log\n")
    (tmp_path / "README.md").write_text("# notes\n")

    values = cli("inspect", tmp_path, "-j", jobs, "--format", "json").json

    assert values["num_requests"] == 4
    assert values["num_repeated_ids"] == 1
    assert values["headers"] == [["x-team", 2]]
    assert [Path(path).name for path in values["ignored_files"]] == ["README.md"]
    by_path = {file["path"]: file for file in values["files"]}
    assert by_path[str(first)]["num_requests"] == by_path[str(second)]["num_requests"] == 2
    assert by_path[str(tmp_path / "c.jsonl")]["problem"] is not None


def test_bomb_stops_at_the_limit_and_its_start_is_kept(cli: Runner, tmp_path: Path) -> None:
    line = (json.dumps(chat(0)) + "\n").encode()
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(line * 2 + b" " * 50_000_000 + line))

    values = cli("inspect", path, "--max-decompressed-gib", 0.01, "--format", "json").json

    assert values["num_requests"] == 2
    assert [item["kind"] for item in values["skipped"]] == ["decompression-limit"]


def test_engine_log_alone_is_shown(cli: Runner) -> None:
    ran = cli("inspect", case_folder("B039") / "vllm.log")

    assert ran.code == 0, ran.err
    assert "5 engine readings" in " ".join(ran.out.split())


def test_nothing_that_can_be_read_is_incomplete(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")

    ran = cli("inspect", path)

    assert ran.code == 3
    assert "no log format recognises" in ran.err


def test_formats_are_listed_with_their_fields(cli: Runner) -> None:
    out = " ".join(cli("list", "formats").out.split())

    assert "prefixaudit's own JSON lines of token ids. Fields: request_id, arrival_s" in out
