"""Rules are read from files, all problems at once; a predicate that fails ends the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.audit import findings
from prefixaudit.audit.findings import finding_of, findings_of
from prefixaudit.audit.rules import load_rules, rules_folder, select_rules
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation, Severity
from prefixaudit.core.rule import PredicateSpec
from prefixaudit.errors import ConfigurationError, IncompleteError, UsageError

RULE = """
title = "A rule of one's own"
severity = "low"
confidence = "low"
scope = "lookup"
since = "0.1.0"
status = "preview"
predicate = "shared-block"
params = { differs = ["user"] }
rationale = "Users are kept apart here."
remediation = "Salt by user."
false_positives = "None."
references = []
"""


def _folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / f"{name.replace('_', '-')}.toml").write_text(text)
    return path


def test_folder_of_further_rules_is_read_beside_the_own_ones(tmp_path: Path) -> None:
    rules = load_rules([_folder(tmp_path / "rules", users_share=RULE)])

    names = [rule.name for rule in rules]
    assert "users-share" in names
    assert len(names) == len(list(rules_folder().glob("*.toml"))) + 1


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path / "rules",
        one=RULE.replace('"user"', '"usr"').replace('severity = "low"', 'severity = "grave"'),
        two=RULE.replace('"shared-block"', '"shared-blok"'),
        three=RULE.replace("params = { differs", "params = { difers"),
    )

    with pytest.raises(ConfigurationError) as raised:
        load_rules([folder])

    text = str(raised.value)
    assert "one.toml:9: params: `differs`: unknown value 'usr'" in text
    assert "did you mean 'user'?" in text
    assert "one.toml:3: severity" in text
    assert "two.toml:8: predicate" in text
    assert "three.toml:9: params: unknown parameter 'difers'" in text
    assert "three.toml:9: params: `differs` is missing" in text


def test_problems_of_examples_are_among_them(tmp_path: Path) -> None:
    example = '[[example]]\nname = "one"\nfinding = ["b <- a"]\n'
    folder = _folder(tmp_path / "rules", one=RULE + example)

    with pytest.raises(ConfigurationError) as raised:
        load_rules([folder])

    text = str(raised.value)
    assert "one.toml:14: example[0].findings: missing" in text
    assert "one.toml:16: example[0].finding: unknown key" in text


def test_name_of_an_own_rule_is_taken(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "rules", adapter_revision_mismatch=RULE)

    with pytest.raises(ConfigurationError, match="is also in"):
        load_rules([folder])


def test_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder of rules"):
        load_rules([tmp_path / "nowhere"])


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'salt-guessable'"):
        select_rules(load_rules(), ["salt-gessable"])


def test_predicate_that_fails_ends_the_run_with_the_rules_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
        raise ZeroDivisionError("a text that might quote the log")

    (rule,) = select_rules(load_rules(), ["prefix-caching-off"])
    spec = PredicateSpec(title="broken", scope="deployment", observe=broken)
    monkeypatch.setattr(findings, "PREDICATES", {rule.predicate: spec})

    with pytest.raises(IncompleteError) as raised:
        findings_of([rule], AuditSubject(servers=(), tiers=()))

    assert "prefix-caching-off" in str(raised.value)
    assert "quote the log" not in str(raised.value)


def test_inconclusive_counts_as_informational_whatever_it_would_be() -> None:
    (rule,) = select_rules(load_rules(), ["tenant-shares-private-prefix"])

    finding = finding_of(rule, Observation(subject="s", message="m", verdict="inconclusive"))

    assert finding.severity == Severity.INFORMATIONAL
    assert finding.severity_if_true == Severity.HIGH


def test_rules_of_lookups_say_nothing_without_a_log() -> None:
    lookup_rules = [rule for rule in load_rules() if rule.scope == "lookup"]

    assert findings_of(lookup_rules, AuditSubject(servers=(), tiers=())) == ()
