"""Reported against replayed, on the public cases and on small logs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.report import Report
from prefixaudit.core.reported import ReportedFacts
from prefixaudit.deployment import Overrides, load_deployment
from tests.cli.running import Runner, case_folder


def report_of(paths: list[Path], engine: str | None = None, **changes: Any) -> Report:
    deployment = load_deployment(None, Overrides(engine=engine, block_size=16, **changes))
    return analyse([str(path) for path in paths], deployment, AnalysisOptions())


def facts_of(report: Report) -> ReportedFacts:
    assert report.reported is not None
    return report.reported


def case(name: str, engine: str | None = None) -> Report:
    names = ("case.json", "expected.json")
    files = sorted(path for path in case_folder(name).iterdir() if path.name not in names)
    return report_of(files, engine)


def answer(name: str) -> Any:
    return json.loads((case_folder(name) / "expected.json").read_text())["answer"]


def found(report: Report) -> dict[str, tuple[int, ...]]:
    assert report.audit is not None
    return {
        item.rule: item.observation.requests
        for item in report.audit.findings
        if item.observation.verdict == "found"
    }


# --- the public cases


def test_null_is_zero_for_versions_that_write_it_so() -> None:
    report = case("B038", "vllm@0.17.1")

    usage, expected = facts_of(report).usage, answer("B038")
    assert usage.hit_rate == pytest.approx(expected["hit_ratio_if_null_means_zero"], abs=1e-4)
    assert usage.cached_tokens == expected["reported_cached_tokens"]
    assert usage.prompt_tokens == expected["prompt_tokens_with_usage"]
    assert usage.missing_requests == tuple(expected["requests_without_usage"])
    findings = found(report)
    assert findings["cached-tokens-null"] == (1, 3)
    assert findings["usage-missing"] == (5,)


@pytest.mark.parametrize("engine", [None, "vllm", "vllm@0.33.0", "sglang@0.5.4"])
def test_null_of_an_unknown_version_gives_a_range(engine: str | None) -> None:
    usage, expected = facts_of(case("B038", engine)).usage, answer("B038")

    assert usage.hit_rate is None
    assert usage.hit_rate_if_null_is_zero == pytest.approx(0.6154, abs=1e-4)
    assert usage.hit_rate_of_reported_only == pytest.approx(
        expected["hit_ratio_of_reported_only"], abs=1e-4
    )


@pytest.mark.parametrize("engine", ["vllm@0.10.2", None])
def test_preempted_work_is_no_reuse(engine: str | None) -> None:
    report = case("B039", engine)

    facts, expected = facts_of(report), answer("B039")
    assert facts.replayed_endless_hit_rate == expected["cross_request_hit_tokens"] == 0
    assert [engine.recent for engine in facts.engines] == [expected["logged_hit_rate_last"]]
    [finding] = [
        item for item in report.audit.findings if item.rule == "hit-rate-above-replay"
    ] if report.audit is not None else []  # fmt: skip
    assert "preempted" in finding.observation.message
    assert report.this_pool.num_cached_tokens == 0


def test_release_that_does_not_count_it_is_not_blamed() -> None:
    report = case("B039", "vllm@0.33.0")

    assert report.audit is not None
    [finding] = [item for item in report.audit.findings if item.rule == "hit-rate-above-replay"]
    assert "finds again" not in finding.observation.message
    assert finding.observation.verdict == "inconclusive", "other requests may explain it"


def test_cached_tokens_inside_and_outside_of_the_prompt() -> None:
    """Six records of 1,000 prompt tokens each."""
    usage, expected = facts_of(case("B043")).usage, answer("B043")["normalised"]

    assert usage.prompt_tokens == sum(row["prompt_tokens"] for row in expected) == 6000
    assert usage.cached_tokens == sum(row["cached_tokens"] for row in expected)
    assert usage.num_with_cached == 6


def test_one_message_on_several_lines_is_one_call() -> None:
    usage, expected = facts_of(case("B044")).usage, answer("B044")

    assert usage.num_requests == expected["calls"]
    assert usage.prompt_tokens == expected["prompt_tokens"]
    assert usage.cached_tokens == expected["cached_tokens"]
    assert usage.completion_tokens == expected["output_tokens"]


def test_huge_line_is_one_record_in_bounded_memory(tmp_path: Path) -> None:
    recipe = json.loads((case_folder("B060") / "recipe.json").read_text())
    lines = []
    for line in recipe["lines"]:
        text = json.dumps(line["record"])
        fill = line.get("fill")
        lines.append(text.replace("@FILL@", fill["char"] * fill["count"]) if fill else text)
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines) + "\n")

    report = report_of([log])

    assert len(lines[1]) > answer("B060")["line_bytes_over"]
    assert report.log.num_records == answer("B060")["records_read"]
    assert [item.source.line for item in report.log.skipped] == [2], "no model folder was given"
    assert all("AAAA" not in item.reason for item in report.log.skipped)


# --- by hand


def log_of(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def ids(number: int, length: int, cached: int | None = None, **fields: Any) -> dict[str, Any]:
    """A request that shares its first 64 tokens with all others, at one minute's distance."""
    tokens = [*range(64), *(1000 * (number + 1) + place for place in range(length - 64))]
    return {
        "request_id": f"r{number}", "arrival_s": 60.0 * number, "prompt_token_ids": tokens,
        "num_prompt_tokens": length, "num_cached_tokens": cached, "lora_name": None,
        "tenant": "a", "cache_salt": None, "user": f"u{number}", **fields,
    }  # fmt: skip


def kinds(report: Report) -> dict[str, tuple[int, int]]:
    return {gap.kind: (gap.num_requests, gap.num_tokens) for gap in facts_of(report).gaps}


def test_what_the_replay_gives_needs_no_reason(tmp_path: Path) -> None:
    report = report_of([log_of(tmp_path, ids(0, 80, 0), ids(1, 80, 64))], "vllm@0.33.0")

    assert kinds(report) == {}
    assert facts_of(report).usage.hit_rate == 64 / 160


def test_more_than_the_complete_identity_allows_is_unsafe(tmp_path: Path) -> None:
    """The server served adapter x's request the base model's 64 tokens, as its key lacks it."""
    log = log_of(tmp_path, ids(0, 80, 0), ids(1, 80, 64, lora_name="x"))

    report = report_of([log], "vllm@0.33.0")

    assert kinds(report) == {"unsafe": (1, 64)}
    beyond = facts_of(report).beyond_identity
    assert beyond is not None
    assert beyond.fields == ("lora_name",)
    assert [(pair.reader, pair.donor, pair.num_tokens) for pair in beyond.pairs] == [
        ("r1", "r0", 64)
    ]
    assert found(report)["server-reports-unsafe-hits"] == (1,)


def test_reuse_across_tenants_is_not_unsafe_where_nobody_says_that_they_differ(
    tmp_path: Path,
) -> None:
    first, second = ids(0, 80, 0), ids(1, 80, 64)
    del second["tenant"]

    report = report_of([log_of(tmp_path, first, second)], "vllm@0.33.0")

    assert "server-reports-unsafe-hits" not in found(report)


def test_more_than_the_log_holds_came_before_it(tmp_path: Path) -> None:
    report = report_of([log_of(tmp_path, ids(0, 80, 64))], "vllm@0.33.0")

    assert kinds(report) == {"not-in-log": (1, 64)}
    assert "server-reports-unsafe-hits" not in found(report)


def test_hits_that_this_pool_evicted_come_from_a_larger_one(tmp_path: Path) -> None:
    """Three requests of five blocks each in a pool of six."""
    third = ids(2, 80, 64)
    other = ids(1, 80, 0) | {"prompt_token_ids": [9000 + place for place in range(80)]}
    log = log_of(tmp_path, ids(0, 80, 0), other, third)

    report = report_of([log], "vllm@0.33.0", capacity_blocks=6)

    assert set(kinds(report)) == {"larger-pool"}


@pytest.mark.parametrize(
    ("changes", "capacity", "kind"),
    [
        ({"tenant": "b"}, None, "finer-key"),
        ({"arrival_s": 0.5}, None, "in-flight"),
        ({}, None, "evicted"),
        ({}, 1000, "unexplained"),
    ],
)
def test_fewer_hits_than_replayed_have_a_reason(
    tmp_path: Path, changes: dict[str, Any], capacity: int | None, kind: str
) -> None:
    log = log_of(tmp_path, ids(0, 80, 0), ids(1, 80, 0, **changes))

    report = report_of([log], "vllm@0.33.0", capacity_blocks=capacity)

    assert kinds(report) == {kind: (1, 64)}


def test_server_that_had_not_seen_the_prompt_explains_a_miss(tmp_path: Path) -> None:
    """Three requests alike, in turn on two servers: the second one's first comes too early."""
    body = {"prompt": list(range(80))}
    records = [
        {
            "timestamp": 1_772_438_400 + 60 * number, "request_id": f"r{number}", "node": node,
            "body": body,
            "response": {
                "usage": {
                    "prompt_tokens": 80, "prompt_tokens_details": {"cached_tokens": cached}
                }
            },
        }
        for number, (node, cached) in enumerate([("n1", 0), ("n2", 0), ("n1", 64), ("n2", 64)])
    ]  # fmt: skip

    report = report_of([log_of(tmp_path, *records)], "vllm@0.33.0")

    assert kinds(report) == {"other-replica": (1, 64)}


def test_replay_of_other_prompts_is_not_compared(tmp_path: Path) -> None:
    records = [ids(number, 80, 64, num_prompt_tokens=81) for number in range(3)]

    report = report_of([log_of(tmp_path, *records)], "vllm@0.33.0")

    facts = facts_of(report)
    assert facts.trust is not None
    assert not facts.trust.is_trusted
    assert facts.trust.difference == -1
    assert facts.gaps == ()
    assert facts.replayed_endless_hit_rate is None
    assert "replay-differs-from-server" in found(report)


def test_one_cut_prompt_is_left_out_and_the_rest_compared(tmp_path: Path) -> None:
    records = [ids(0, 80, 0), *(ids(number, 80, 64) for number in range(1, 19))]
    records.append(ids(19, 80, 16, num_prompt_tokens=4000))

    report = report_of([log_of(tmp_path, *records)], "vllm@0.33.0")

    facts = facts_of(report)
    assert facts.trust is not None
    assert facts.trust.is_trusted
    assert kinds(report) == {}


def test_prompt_of_unknown_length_is_not_held_against_the_replay(tmp_path: Path) -> None:
    """Without a rule for its images the model's prompts are shorter here than on the server."""
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    usage = {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 896}}
    record = {"request_id": "r", "body": body, "response": {"usage": usage}}

    report = report_of([log_of(tmp_path, record)], model_dir=case_folder("B001"))

    facts = facts_of(report)
    assert report.log.num_approximate == 1
    assert facts.trust is None
    assert facts.gaps == ()
    assert facts.usage.cached_tokens == 896


def test_repeated_ids_are_counted(tmp_path: Path) -> None:
    report = report_of([log_of(tmp_path, ids(0, 80, 0), ids(0, 80, 64), ids(0, 80, 64))])

    assert facts_of(report).num_repeated_ids == 2


def test_log_without_figures_of_the_server_says_nothing_of_them(tmp_path: Path) -> None:
    record = {"prompt_token_ids": [1, 2, 3]}

    assert report_of([log_of(tmp_path, record)]).reported is None


def test_huge_image_is_counted_and_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case B060's line under a model folder: 6,750,000 bytes that are no prompt text."""
    url = "data:image/png;base64," + "A" * 9_000_000
    body = {"model": "m", "messages": [{"role": "user", "content": [{"image_url": {"url": url}}]}]}
    log = log_of(tmp_path, {"request_id": "huge", "body": body})

    ran = Runner(capsys)("analyze", log, "--model", case_folder("B001"), "--block-size", 16)

    assert ran.code == 0, ran.err
    assert "1 images or other media in messages, 6,750,000 bytes" in " ".join(ran.out.split())
    assert "AAAA" not in ran.out + ran.err
