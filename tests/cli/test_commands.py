"""hash, export, list, explain and verify."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from prefixaudit.cli.kinds import KINDS
from tests.cli.running import Runner, case_folder

DATA = Path(__file__).parent.parent / "data"
IDS = "256,257,10,11,12,13,14,15,16"


def test_reference_chain_of_ids(cli: Runner) -> None:
    """The first case of the reference chain's published vectors."""
    ran = cli(
        "hash", "--ids", IDS, "--engine", "reference", "--block-size", 4,
        "--identity", "model_revision=model-v1", "-f", "json",
    )  # fmt: skip

    assert [block["digest"] for block in ran.json["blocks"]] == [
        "1df980afbbd2f32f68437bed3d8877c26e6e5b183c8fb2c38a2b7c3864b8c4f4",
        "cb0423362605b626c4a62871da6325052217116c092a16d2271f8ef3f2a1fd12",
    ]
    assert ran.json["num_prompt_tokens"] == 9


def test_ids_from_a_file_as_json(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text(json.dumps([int(word) for word in IDS.split(",")]))

    inline = cli("hash", "--ids", IDS, "--block-size", 4)
    file = cli("hash", "--ids", f"@{tmp_path / 'ids.json'}", "--block-size", 4)

    assert file.code == 0
    assert file.out == inline.out


def test_identity_changes_the_canonical_chain(cli: Runner) -> None:
    def digests(*options: str) -> list[str]:
        ran = cli("hash", "--ids", IDS, "--block-size", 4, "-f", "json", *options)
        return [block["digest"] for block in ran.json["blocks"]]

    plain, salted = digests(), digests("--identity", "cache_salt=a")
    absent = digests("--identity", "cache_salt=")

    assert not {*plain} & {*salted} | {*salted} & {*absent}


def test_salt_is_not_printed(cli: Runner) -> None:
    ran = cli("hash", "--ids", IDS, "--identity", "cache_salt=CANARY", "--engine", "vllm@0.33.0")

    assert ran.code == 0
    assert "CANARY" not in ran.out + ran.err


def test_record_of_a_log_by_id_and_by_line(cli: Runner) -> None:
    folder = case_folder("B001")

    by_id = cli("hash", folder / "requests.jsonl", "--request", "req-001", "--model", folder)
    by_line = cli("hash", folder / "requests.jsonl", "--request", "2", "--model", folder)

    assert by_id.code == 0, by_id.err
    assert by_id.out == by_line.out
    assert "460 tokens: 28 blocks" in by_id.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ids", "1,-2"), "entry 1 is no token id"),
        (("--ids", "1,4294967296"), "entry 1 is no token id"),
        ((), "give one prompt"),
        (("--ids", "1", "--text", "a"), "give one prompt"),
        (("--ids", "1", "--identity", "colour=red"), "unknown identity field 'colour'"),
        (("--ids", "@/does/not/exist"), "can't be read"),
    ],
)
def test_wrong_prompts_are_usage_errors(
    cli: Runner, arguments: tuple[str, ...], message: str
) -> None:
    ran = cli("hash", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_export_is_read_back_with_the_same_figures(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B001")
    trace = tmp_path / "log.trace"
    log_options = ("--model", folder, "--block-size", 16)

    exported = cli("export", folder / "requests.jsonl", "-o", trace, *log_options)
    again = cli("analyze", trace, "-f", "json")
    first = cli("analyze", folder / "requests.jsonl", "-f", "json", *log_options)

    assert exported.code == 0, exported.err
    assert exported.out == ""
    for key in ("totals", "endless_pool", "hit_length", "curve"):
        assert again.json[key] == first.json[key]


@pytest.mark.parametrize("command", ["analyze", "why", "plan"])
def test_json_of_a_log_whose_name_is_not_utf_8(cli: Runner, tmp_path: Path, command: str) -> None:
    log = tmp_path / os.fsdecode(b"a\xffb.jsonl")
    shutil.copy(case_folder("B049") / "requests.jsonl", log)

    ran = cli(command, log, "--engine", "vllm@0.33.0", "--capacity-blocks", 14, "-f", "json")

    assert ran.code in (0, 1), ran.err
    assert ran.json["schema_version"] == 1

    inspected = cli("inspect", log, "-f", "json")
    assert inspected.code == 0, inspected.err


@pytest.mark.parametrize("command", ["analyze", "why", "plan", "export"])
def test_commands_that_read_a_log_take_the_same_limits(
    cli: Runner, tmp_path: Path, command: str
) -> None:
    output = ("-o", tmp_path / "log.trace") if command == "export" else ()

    # Every line of the log is longer than 0.00001 MiB, 10 bytes.
    ran = cli(command, case_folder("B049") / "requests.jsonl", "--max-line-mib", 0.00001, *output)

    assert ran.code == 3
    assert "at most 10 are read" in ran.err


def test_export_holds_no_id_salt_or_text(cli: Runner, tmp_path: Path) -> None:
    log, trace = tmp_path / "log.jsonl", tmp_path / "log.trace"
    body = {"model": "m", "prompt": list(range(40)), "cache_salt": "CANARY", "user": "CANARY"}
    log.write_text(json.dumps({"request_id": "CANARY", "body": body}) + "\n")

    for layout in ("native", "mooncake", "bailian"):
        assert cli("export", log, "-o", trace, "--as", layout).code == 0
        assert b"CANARY" not in trace.read_bytes()


@pytest.mark.parametrize("name", KINDS.names)
def test_list_and_explain_every_member(cli: Runner, name: str) -> None:
    kind = KINDS[name]

    listed = cli("list", name)
    members = cli("list", name, "--format", "json").json["members"]

    assert listed.code == 0
    assert sorted(next(iter(row.values())) for row in members) == sorted(kind.names())
    for member in kind.names():
        assert f"\n{member} " in listed.out
        page = cli("explain", f"{kind.singular}:{member}")
        assert page.code == 0
        assert len(page.out.splitlines()) > 2


def test_engine_page_names_what_the_key_lacks(cli: Runner) -> None:
    page = cli("explain", "engine:vllm@0.33.0").out

    assert "Not in the key of pool" in page
    assert "lora_revision" in page.split("Not in the key", 1)[1]


def test_unknown_names_are_usage_errors(cli: Runner) -> None:
    assert "did you mean 'engines'" in cli("list", "engine").err
    assert "did you mean 'vllm'" in cli("explain", "vlm").err
    assert "unknown kind 'engin'" in cli("explain", "engin:vllm").err


def test_verify_counts_and_tells_a_mismatch(cli: Runner, tmp_path: Path) -> None:
    source = next((DATA / "sglang_replay").rglob("*.json"))
    folder = tmp_path / "sglang_replay"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes())

    good = cli("verify", tmp_path)
    data = json.loads(source.read_text())
    first_add = next(result for result in data["expect"] if result and "hit" in result)
    first_add["hit"] += 1
    (folder / source.name).write_text(json.dumps(data))
    bad = cli("verify", tmp_path)

    assert (good.code, bad.code) == (0, 1)
    assert good.out.endswith("exit 0: all equal\n")
    assert "first mismatch of sglang-replay" in bad.out
    assert cli("verify", tmp_path, "-f", "json").json["num_mismatches"] >= 1


def test_verify_is_incomplete_with_a_json_file_that_it_cannot_verify(
    cli: Runner, tmp_path: Path
) -> None:
    source = next((DATA / "sglang_replay").rglob("*.json"))
    folder = tmp_path / "sglang_replay"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes())
    (tmp_path / "README.md").write_text("documents are no vectors")
    (tmp_path / "notes.txt").write_text("nor are notes")

    assert cli("verify", tmp_path).code == 0

    (tmp_path / "other.json").write_text('{"engine": "other"}')
    unknown = cli("verify", tmp_path)
    (tmp_path / "cut.json").write_text('{"engine": ')
    broken = cli("verify", tmp_path)

    assert (unknown.code, broken.code) == (3, 3)
    assert "incomplete, JSON files that say nothing: 1 of no known kind" in unknown.out
    assert "1 broken, 1 of no known kind" in broken.out


def test_verify_of_nothing_is_incomplete(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")

    assert cli("verify", tmp_path).code == 3
