"""Cases after public bug reports about logs and what servers report, by the whole command.

What each says stands in its expected.json, right by reasoning: figures, findings (by cause, request
and place) and what must not be said. Findings are rules', causes of broken prefixes (`why`), facts
of the log (`log.facts`) or findings of `plan`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ran, Runner, case_folder, rows_of

BLOCKS = ("--block-size", 16)


def answer_of(name: str) -> Any:
    return json.loads((case_folder(name) / "expected.json").read_text())["answer"]


def analyzed(cli: Runner, *arguments: object, code: int = 0) -> Any:
    ran = cli("analyze", *arguments, "--format", "json")
    assert ran.code == code, ran.err
    return ran.json


def facts_of(report: Any) -> dict[str, Any]:
    """Facts by kind, where each kind is there once."""
    kinds = [fact["kind"] for fact in report["log"]["facts"]]
    assert len(set(kinds)) == len(kinds), kinds
    return {fact["kind"]: fact for fact in report["log"]["facts"]}


def lines_of(fact: Any) -> list[int]:
    return [int(source.rpartition(":")[2]) for source in fact["sources"]]


def found_rules(report: Any) -> dict[str, list[int]]:
    return {
        item["rule"]: item["requests"]
        for item in report["findings"]
        if item.get("verdict", "found") == "found"
    }


def hits_of(cli: Runner, tmp_path: Path, *arguments: object) -> list[int]:
    rows = tmp_path / "rows.jsonl"
    analyzed(cli, *arguments, "--per-request", rows)
    return [row["num_cached_tokens"] for row in rows_of(rows)]


def test_double_begin_token_is_a_cause_at_its_requests(cli: Runner, tmp_path: Path) -> None:
    folder = case_folder("B011")
    log = (folder / "requests.jsonl", "--model", folder, *BLOCKS)

    rows = tmp_path / "rows.jsonl"
    [cause] = analyzed(cli, *log, "--per-request", rows)["why"]["causes"]

    assert cause["kind"] == "double-bos"
    assert cause["requests"] == [1, 2]
    found = rows_of(rows)
    assert [row["num_prompt_tokens"] for row in found] == answer_of("B011")["prompt_tokens"]
    assert [row["num_cached_tokens"] for row in found] == answer_of("B011")["hit_tokens"]
    assert found[1]["donors"] == [], "nothing of request 0"


def test_billing_header_is_named_by_its_place(cli: Runner) -> None:
    folder = case_folder("B013")

    report = analyzed(
        cli, folder / "requests.jsonl", "--model", folder, *BLOCKS, "--engine", "vllm@0.17.1"
    )

    [cause] = report["why"]["causes"]
    assert cause["requests"] == [1, 2]
    assert cause["place"] == "system[0].text"
    assert cause["first_divergent_token"] == answer_of("B013")["first_divergent_token"]
    assert "cache_control" not in json.dumps(report)


def test_null_is_told_from_zero_by_the_version(cli: Runner) -> None:
    log = case_folder("B038") / "requests.jsonl"
    answer = answer_of("B038")

    known = analyzed(cli, log, *BLOCKS, "--engine", "vllm@0.17.1")
    unknown = analyzed(cli, log, *BLOCKS)

    usage = known["reported"]["usage"]
    assert usage["hit_rate"] == pytest.approx(answer["hit_ratio_if_null_means_zero"], abs=1e-4)
    assert found_rules(known)["cached-tokens-null"] == [1, 3]
    assert found_rules(known)["usage-missing"] == [5]
    assert found_rules(unknown)["usage-missing"] == answer["requests_without_usage"], "not zero"
    usage = unknown["reported"]["usage"]
    assert usage["hit_rate"] is None, "0.8889 without a caveat"
    assert usage["hit_rate_of_reported_only"] == pytest.approx(0.8889, abs=1e-4)
    assert usage["prompt_tokens"] == answer["prompt_tokens_with_usage"], "request 5 isn't in it"


def test_preempted_work_is_no_reuse(cli: Runner) -> None:
    folder = case_folder("B039")

    report = analyzed(
        cli, folder / "requests.jsonl", folder / "vllm.log", *BLOCKS, "--engine", "vllm@0.10.2"
    )

    assert "hit-rate-above-replay" in found_rules(report)
    assert report["totals"]["num_cached_tokens"] == answer_of("B039")["cross_request_hit_tokens"]
    assert report["totals"]["token_hit_rate"] == 0, "no 32 % of savings"


def test_repeat_of_whole_blocks_is_rounded_and_no_fault(cli: Runner) -> None:
    """Of the lengths, 16, 32 and 48 are whole blocks; each second request repeats the first."""
    report = analyzed(cli, case_folder("B041") / "requests.jsonl", *BLOCKS)

    fact = facts_of(report)["block-rounding"]
    lengths = [row["prompt_tokens"] for row in answer_of("B041")["per_length"]]
    assert fact["requests"] == [2 * n + 1 for n, size in enumerate(lengths) if not size % 16]
    assert fact["severity"] == "informational"
    assert not found_rules(report)
    assert not report["why"]["causes"]


def test_pages_of_one_token_are_hit_but_for_the_last(cli: Runner, tmp_path: Path) -> None:
    log = case_folder("B041") / "requests.jsonl"

    hits = hits_of(cli, tmp_path, log, "--engine", "sglang@0.5.4", "--block-size", 1)

    expected = [row["cached_tokens_on_repeat"] for row in answer_of("B041")["sglang_page_size_1"]]
    assert hits[1::2] == expected


def test_cached_tokens_in_and_beside_prompts_are_told_apart(cli: Runner) -> None:
    """1000 prompt tokens each, whoever counts: the Anthropic record is the second of its file."""
    folder = case_folder("B043")

    report = analyzed(cli, folder / "usage.jsonl", folder / "span.otlp.json", code=3)

    usage = report["reported"]["usage"]
    expected = answer_of("B043")["normalised"]
    assert usage["prompt_tokens"] == sum(row["prompt_tokens"] for row in expected)
    assert usage["cached_tokens"] == sum(row["cached_tokens"] for row in expected)
    fact = facts_of(report)["metric-double-count"]
    assert [report["log"]["skipped"][n]["source"].rpartition(":")[2] for n in fact["requests"]] == [
        "2"
    ]


def test_lines_of_one_call_are_counted_once(cli: Runner) -> None:
    report = analyzed(cli, case_folder("B044") / "transcript.jsonl", code=3)

    usage, answer = report["reported"]["usage"], answer_of("B044")
    assert usage["num_requests"] == report["log"]["num_skipped"] == answer["calls"]
    assert usage["prompt_tokens"] == answer["prompt_tokens"]
    assert usage["cached_tokens"] == answer["cached_tokens"]
    assert usage["completion_tokens"] == answer["output_tokens"]
    assert lines_of(facts_of(report)["log-duplicates"]) == [1, 2, 3, 4, 5]


def test_trace_in_larger_blocks_gives_a_range(cli: Runner) -> None:
    report = analyzed(cli, case_folder("B054") / "trace.jsonl", *BLOCKS)

    fact, ids = facts_of(report)["trace-resolution"], report["trace_ids"]
    assert fact["severity"] == "informational"
    assert "512" in fact["about"]
    assert "blocks of 16 tokens" in fact["about"]
    assert ids["min_token_hit_rate"] < ids["max_token_hit_rate"]


def test_holes_are_counted_with_line_and_size(cli: Runner) -> None:
    report = analyzed(cli, case_folder("B055") / "requests.jsonl", *BLOCKS)

    answer, facts = answer_of("B055"), facts_of(report)
    assert report["log"]["num_requests"] == answer["records_read"]
    [hole], [repaired] = answer["bad_lines"], answer["repaired_lines"]
    assert lines_of(facts["log-damaged"]) == [hole["line"]]
    assert str(hole["bytes"]) in report["log"]["skipped"][0]["reason"]
    assert lines_of(facts["log-repaired"]) == [repaired["line"]]
    assert facts["log-repaired"]["num_bytes"] == repaired["bytes"]


def test_cut_tail_is_no_lost_data(cli: Runner) -> None:
    report = analyzed(cli, case_folder("B057") / "requests.jsonl", *BLOCKS)

    answer, facts = answer_of("B057"), facts_of(report)
    assert report["log"]["num_requests"] == answer["records_read"]
    assert lines_of(facts["log-damaged"]) == [row["line"] for row in answer["bad_lines"]]
    assert lines_of(facts["log-incomplete-tail"]) == [answer["incomplete_tail"]["line"]]
    assert facts["log-damaged"]["severity"] != facts["log-incomplete-tail"]["severity"]


def test_byte_order_marks_are_no_data(cli: Runner) -> None:
    folder = case_folder("B058")

    report = analyzed(cli, folder / "host1.jsonl", folder / "host2.jsonl", *BLOCKS)

    answer = answer_of("B058")
    assert report["log"]["num_skipped"] == 0
    assert report["log"]["num_requests"] == sum(answer["records_read"].values())
    encodings = {Path(file["path"]).name: file["encoding"] for file in report["log"]["files"]}
    assert encodings == answer["encodings"]
    named = [fact for fact in report["log"]["facts"] if fact["kind"] == "log-encoding"]
    assert sorted(Path(fact["sources"][0]).name for fact in named) == sorted(encodings)
    [mark] = [fact for fact in report["log"]["facts"] if fact["kind"] == "log-repaired"]
    assert lines_of(mark) == [2]


def huge_log(folder: Path) -> Path:
    recipe = json.loads((case_folder("B060") / "recipe.json").read_text())
    lines = []
    for line in recipe["lines"]:
        text, fill = json.dumps(line["record"]), line.get("fill")
        lines.append(text.replace("@FILL@", fill["char"] * fill["count"]) if fill else text)
    log = folder / "log.jsonl"
    log.write_text("\n".join(lines) + "\n")
    return log


def test_huge_line_is_named_and_never_shown(cli: Runner, tmp_path: Path) -> None:
    log = huge_log(tmp_path)

    ran: Ran = cli("analyze", log, "--model", case_folder("B001"), *BLOCKS, "--format", "json")

    report, answer = ran.json, answer_of("B060")
    fact = facts_of(report)["log-large-line"]
    assert (fact["requests"], lines_of(fact)) == ([1], [2])
    assert fact["num_bytes"] > answer["line_bytes_over"]
    assert report["log"]["num_records"] == answer["records_read"]
    assert report["log"]["num_skipped"] == 0
    assert f"{answer['image_bytes']:,} bytes" in " ".join(report["notes"])
    assert report["totals"]["num_prompt_tokens"] < 1_000, "no data URL is tokenized"
    assert "AAAA" not in ran.out + ran.err


def test_huge_line_is_read_in_bounded_memory_and_time(tmp_path: Path) -> None:
    """In a process of its own: its largest resident set, imports included, and processor time."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the largest resident set is read from /proc")
    script = (
        "import sys, time; from prefixaudit.cli import run; code = run(sys.argv[1:]); "
        f"[peak] = [l.split()[1] for l in open('{status}') if l.startswith('VmHWM')]; "
        "print(peak, time.process_time(), file=sys.stderr); sys.exit(code)"
    )
    arguments = ["analyze", str(huge_log(tmp_path)), "--block-size", "16"]

    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )

    kib, seconds = (float(number) for number in ran.stderr.split()[-2:])
    assert kib / 1024 < answer_of("B060")["peak_memory_mib_below"]
    assert seconds < answer_of("B060")["seconds_below"]


def test_cut_prompts_are_named_and_not_replayed(cli: Runner, tmp_path: Path) -> None:
    folder, rows = case_folder("B061"), tmp_path / "rows.jsonl"

    report = analyzed(
        cli, folder / "vllm.log", folder / "sglang.log", "--model", folder, *BLOCKS,
        "--per-request", rows, code=3,
    )  # fmt: skip

    answer, facts, found = answer_of("B061"), facts_of(report), rows_of(rows)
    ids = [row["request_id"] for row in found]
    assert [ids[n] for n in facts["log-truncated-prompt"]["requests"]] == answer["truncated"]
    assert [ids[n] for n in facts["log-no-prompt"]["requests"]] == answer["no_prompt"]
    replayed = {row["request_id"]: row["num_prompt_tokens"] for row in found if not row["error"]}
    assert sorted(replayed) == answer["replayable"]
    assert replayed["chatcmpl-1"] == answer["prompt_tokens"]["chatcmpl-1"]
    assert any("no year" in note for note in report["notes"])


def test_logs_of_both_ends_are_told_to_count_twice(cli: Runner, tmp_path: Path) -> None:
    """vLLM's own log and a gateway's name requests differently: nothing joins them."""
    folder = case_folder("B061")
    gateway = case_folder("B041") / "requests.jsonl"

    both = analyzed(cli, folder / "vllm.log", gateway, "--model", folder, *BLOCKS)
    readings = analyzed(cli, case_folder("B039") / "vllm.log", gateway, *BLOCKS)

    assert facts_of(both)["log-read-from-both-ends"]["num"] == 2
    assert "log-read-from-both-ends" not in facts_of(readings), "engine lines hold no requests"
    assert any("counted twice" in note for note in both["notes"])


def test_route_that_ignores_sessions_is_advised_against(cli: Runner) -> None:
    log = case_folder("B052") / "trace.jsonl"

    plan = cli(
        "plan", log, "--replicas", 4, "--routing", "round-robin,session", "--format", "json"
    ).json

    rates, answer = {o["label"]: o["token_hit_rate"] for o in plan["options"]}, answer_of("B052")
    assert rates["4 x round-robin"] == pytest.approx(answer["round_robin_hit_ratio"], abs=0.005)
    assert rates["4 x session"] == pytest.approx(answer["session_affinity_hit_ratio"], abs=0.005)
    assert plan["endless_hit_rate"] == pytest.approx(answer["single_cache_hit_ratio"], abs=0.005)
    [finding] = plan["findings"]
    assert finding.startswith("4 x round-robin hits 41.9% of the tokens less than 4 x session")


def test_inspection_names_damage_and_cut_prompts_by_line(cli: Runner) -> None:
    holes = cli("inspect", case_folder("B055") / "requests.jsonl", "--format", "json").json
    cut = cli("inspect", case_folder("B061") / "vllm.log", "--format", "json").json

    answer = answer_of("B055")
    [damage] = holes["skipped"]
    assert lines_of(damage) == [row["line"] for row in answer["bad_lines"]]
    repairs = [(int(m["source"].rpartition(":")[2]), m["num_bytes"]) for m in holes["marked"]]
    assert repairs == [(row["line"], row["bytes"]) for row in answer["repaired_lines"]]
    assert [mark["kind"] for mark in cut["marked"]] == ["cut-prompt", "no-prompt-logged"]
    [file] = cut["files"]
    assert file["num_other_lines"] == answer_of("B061")["not_requests"]
