"""The audit in `analyze`: what a user sees of findings, keys and open questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Runner

RULE = """
title = "Users share blocks"
severity = "low"
confidence = "low"
scope = "lookup"
since = "0.1.0"
status = "preview"
predicate = "shared-block"
params = { differs = ["tenant"] }
rationale = "Tenants are kept apart here, salted or not."
remediation = "Salt by tenant."
false_positives = "None."
references = []
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two tenants send one prompt of 81 tokens; nothing separates them."""
    records = (
        {
            "request_id": f"r{number}",
            "arrival_s": 1_772_438_400 + number,
            "model": "m",
            "tenant": tenant,
            "cache_salt": None,
            "lora_name": None,
            "prompt_token_ids": list(range(81)),
        }
        for number, tenant in enumerate(["acme", "bob"])
    )
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_text_names_what_was_found_and_what_to_do(cli: Runner, log: Path) -> None:
    ran = cli("analyze", log, "--engine", "vllm@0.33.0")

    assert ran.code == 0
    assert "FINDINGS  1 high (of" in ran.out
    flat = " ".join(ran.out.split())
    assert (
        "high tenant-shares-private-prefix: 1 request got 80 tokens from blocks in pool that "
        "another request stored under another tenant; the first: r1 <- r0"
    ) in flat
    assert "do: Let the gateway set a cache_salt for each tenant" in flat
    assert "of it safe 0.00 %" in flat
    assert "1 request, 80 tokens; + tenant closes it" in flat
    assert "within tenants (2) 0.00 % -49.38" in flat


def test_open_questions_are_counted_and_listed_when_asked_for(cli: Runner, log: Path) -> None:
    short = cli("analyze", log, "--engine", "vllm@0.33.0").out
    full = cli("analyze", log, "--engine", "vllm@0.33.0", "--show-inconclusive").out

    assert "without an answer for want of" in " ".join(short.split())
    assert "without an answer:" in full
    assert full.count("not known") > short.count("not known")


def test_json_holds_findings_and_tiers(cli: Runner, log: Path) -> None:
    ran = cli("analyze", log, "--engine", "vllm@0.33.0", "--format", "json")

    found = [item for item in ran.json["findings"] if item["verdict"] == "found"]
    assert [(item["rule"], item["severity"], item["requests"]) for item in found] == [
        ("tenant-shares-private-prefix", "high", [1])
    ]
    assert found[0]["evidence"][0]["donor_source"] == f"{log}:1"
    (tier,) = ran.json["audit"]["tiers"]
    assert tier["gaps"] == [
        {"field": "tenant", "num_requests": 1, "num_tokens": 80, "num_pairs": 1}
    ]


def test_folder_of_rules_adds_findings(cli: Runner, tmp_path: Path, log: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "users-share.toml").write_text(RULE)

    ran = cli("analyze", log, "--engine", "vllm@0.33.0", "--rules", tmp_path / "rules")

    assert "1 high, 1 low" in ran.out
    assert "users-share" in ran.out


def test_broken_rule_is_a_configuration_error(cli: Runner, tmp_path: Path, log: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "users-share.toml").write_text(RULE.replace('"tenant"', '"tenent"'))

    ran = cli("analyze", log, "--rules", tmp_path / "rules")

    assert ran.code == 2
    assert "did you mean 'tenant'?" in ran.err


def test_audit_can_be_left_out(cli: Runner, log: Path) -> None:
    ran = cli("analyze", log, "--engine", "vllm@0.33.0", "--no-audit", "--format", "json")

    assert ran.json["audit"] is None
    assert ran.json["findings"] == []


def test_export_is_audited_when_read_back(cli: Runner, tmp_path: Path, log: Path) -> None:
    cli("export", log, "--engine", "vllm@0.33.0", "-o", tmp_path / "log.trace")

    ran = cli("analyze", tmp_path / "log.trace", "--engine", "vllm@0.33.0", "--format", "json")

    found = [item["rule"] for item in ran.json["findings"] if item["verdict"] == "found"]
    assert found == ["tenant-shares-private-prefix"]
