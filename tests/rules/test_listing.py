"""`list rules` and `explain RULE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.audit.rules import load_rules
from prefixaudit.cli.explaining import page_of
from prefixaudit.cli.kinds import KINDS
from prefixaudit.errors import UsageError

_OWN_RULE = """
title = "Something of our own"
severity = "low"
confidence = "low"
scope = "deployment"
since = "1"
status = "preview"
predicate = "server-facts"
params = { engines = ["vllm"], needs = { enable_lora = true, python_version = ">=3.12" } }
rationale = "Why."
remediation = "What."
false_positives = "When not."
references = []
"""


def test_list_shows_every_rule_once_the_most_severe_first() -> None:
    rows = KINDS["rules"].table().rows

    assert sorted(row[0] for row in rows) == [rule.name for rule in load_rules()]
    ranks = {"high": 0, "medium": 1, "low": 2, "informational": 3}
    assert [ranks[row[1]] for row in rows] == sorted(ranks[row[1]] for row in rows)


def test_page_of_a_rule_shows_what_it_asks() -> None:
    lines = [" ".join(line.split()) for line in page_of("predictable-builtin-hash")]

    assert lines[0] == "rule predictable-builtin-hash"
    assert "needs python_version is >=3.12" in lines
    assert "before 0.7.2" in lines
    assert "https://nvd.nist.gov/vuln/detail/CVE-2025-25183" in lines


def test_rule_of_a_folder_of_ones_own_is_explained_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "our-own.toml"
    path.write_text(_OWN_RULE, encoding="utf-8")

    lines = page_of(f"rule:{path}")

    assert lines[:2] == ["rule our-own", "Something of our own"]


def test_mistyped_rule_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match="did you mean 'salt-guessable'"):
        page_of("rule:salt-gessable")
