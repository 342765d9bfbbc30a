"""Damaged and hostile input: a clear message, the right exit code, nothing lost, nothing leaked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.running import Ran, Runner, case_folder, rows_of

CANARY = "CANARY-7f3a"
LOG = case_folder("B001") / "requests.jsonl"
MODEL = case_folder("B001")
# What stands in the prompts of that log.
PROMPT_TEXT = "scheduling clerk"


def _is_private(ran: Ran, *files: Path) -> bool:
    texts = [ran.out, ran.err, *(file.read_text() for file in files)]
    return not any(word in text for text in texts for word in (CANARY, PROMPT_TEXT, "Traceback"))


def _model(folder: Path, template: str) -> Path:
    folder.mkdir()
    shutil.copy(MODEL / "tokenizer.json", folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def _record(content: str) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return json.dumps({"body": body, "path": "/v1/chat/completions"}).encode() + b"\n"


def test_empty_file(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()

    ran = cli("analyze", tmp_path / "log.jsonl")

    assert (ran.code, ran.out) == (3, "")
    assert "the file is empty" in ran.err


def test_folder_without_logs(cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no log")

    ran = cli("analyze", tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert "none of the 1 files in the folder is a log" in ran.err


def test_text_without_a_tokenizer(cli: Runner) -> None:
    ran = cli("analyze", LOG)

    assert ran.code == 3
    assert "error: incomplete: none of the 4 records could be replayed" in ran.err
    assert "give one with --model DIR" in " ".join(ran.out.split())
    assert _is_private(ran)


def test_model_folder_without_a_tokenizer(cli: Runner, tmp_path: Path) -> None:
    ran = cli("analyze", LOG, "--model", tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert "tokenizer.json: no such file" in ran.err


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ raise_exception('" + CANARY + " ' ~ messages[0].content) }}", "template-refused"),
        ("{{ ''.__class__.__mro__ }}", "template-forbidden"),
        ("{% for message in messages %}{{ message.content.nothing.at_all }}{% endfor %}", ""),
    ],
)
def test_template_that_fails(cli: Runner, tmp_path: Path, template: str, kind: str) -> None:
    model = _model(tmp_path / "model", template)
    rows = tmp_path / "rows.jsonl"

    ran = cli("analyze", LOG, "--model", model, "--per-request", rows)

    assert ran.code == 3
    assert f"4 {kind}" in ran.out
    assert "line 1" in ran.out
    assert all(row["error"] is not None for row in rows_of(rows))
    assert _is_private(ran, rows)


def test_damaged_records_cost_only_themselves(cli: Runner, tmp_path: Path) -> None:
    lines = LOG.read_bytes().splitlines(keepends=True)
    damaged = [
        lines[0],
        b"\0" * 4096,
        lines[1],
        b'{"body": {"messages": "' + CANARY.encode() + b"\xff\n",
        b"{not json " + CANARY.encode() + b"}\n",
        lines[2],
        _record(CANARY)[:-20],
    ]
    log, rows_file = tmp_path / "log.jsonl", tmp_path / "rows.jsonl"
    log.write_bytes(b"".join(damaged))

    ran = cli(
        "analyze", log, "--model", MODEL, "--block-size", 16, "--per-request", rows_file,
        "--format", "json", "--log-format", "openai",
    )  # fmt: skip

    report = ran.json
    rows = rows_of(rows_file)
    assert ran.code == 0
    assert report["log"]["num_requests"] == 3
    assert report["log"]["num_skipped"] == len(report["log"]["skipped"]) == 3
    assert report["log"]["num_records"] == len(rows) == 6
    assert [row["index"] for row in rows] == list(range(6))
    assert [row["num_cached_tokens"] for row in rows if row["error"] is None] == [0, 32, 32]
    assert _is_private(ran, rows_file)


def test_huge_line_is_skipped_in_bounded_memory(cli: Runner, tmp_path: Path) -> None:
    lines = LOG.read_bytes().splitlines(keepends=True)
    log = tmp_path / "log.jsonl"
    with log.open("wb") as file:
        file.write(lines[0])
        file.write(b'{"body": {"messages": [{"role": "user", "content": "')
        for _ in range(70):
            file.write(b"x" * 2**20)
        file.write(b'"}]}}\n')
        file.write(lines[1])

    report = cli("analyze", log, "--model", MODEL, "--format", "json").json

    assert report["log"]["num_requests"] == 2
    assert report["log"]["num_skipped_by_kind"] == {"line-too-long": 1}


def test_more_skipped_than_replayed_is_incomplete(cli: Runner, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(LOG.read_bytes().splitlines(keepends=True)[0] + b"{broken}\n{broken}\n")

    ran = cli("analyze", log, "--model", MODEL)

    assert ran.code == 3
    assert "2 of 3 records were skipped" in ran.err


def test_nothing_private_in_any_output(cli: Runner, tmp_path: Path) -> None:
    """Canaries in every field that can hold a secret; ids are no secret."""
    log, rows = tmp_path / "log.jsonl", tmp_path / "rows.jsonl"
    record = {
        "request_id": "req-1",
        "timestamp": "2026-03-02T10:00:00Z",
        "path": "/v1/chat/completions",
        "headers": {"authorization": f"Bearer {CANARY}", "x-tenant-id": "acme"},
        "body": {
            "model": "m",
            "cache_salt": CANARY,
            "user": "someone",
            "messages": [{"role": "user", "content": f"tell me {CANARY}"}],
            "tools": [{"type": "function", "function": {"name": CANARY, "parameters": {}}}],
        },
        "response": {"choices": [{"message": {"role": "assistant", "content": CANARY}}]},
    }
    log.write_text((json.dumps(record) + "\n") * 3)
    deployment = tmp_path / "prefixaudit.toml"
    deployment.write_text('[tenant]\nsource = ["api-key"]\n')

    for form in ("text", "json"):
        ran = cli(
            "analyze", log, "--model", MODEL, "-f", form, "--per-request", rows, "--show-skipped"
        )

        assert ran.code == 0
        assert _is_private(ran, rows)


def test_settings_that_can_not_work_fail_before_the_log_is_read(
    cli: Runner, tmp_path: Path
) -> None:
    """The log isn't there: only a check before reading can give the other message."""
    log = tmp_path / "missing.jsonl"

    gib = cli("analyze", log, "--model", MODEL, "--capacity-gib", 3)
    folder = cli("analyze", log, "--model", MODEL, "-o", tmp_path / "none" / "x.json")

    assert gib.code == folder.code == 2
    assert "KV bytes of a token aren't known" in gib.err
    assert "no such folder" in folder.err
