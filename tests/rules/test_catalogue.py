"""What every rule owes: both kinds of examples, references, parameters that its examples pin down.

That each example finds what it says is held by tests/audit/test_rule_examples.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from prefixaudit.audit.examples import run_example
from prefixaudit.audit.page import rules_page
from prefixaudit.audit.predicates import PREDICATES
from prefixaudit.audit.rules import examples_of, load_rules, read_rule, rules_folder
from prefixaudit.cli.explaining import page_of
from prefixaudit.core.rule import PredicateSpec, Rule
from prefixaudit.registry import Registry
from prefixaudit.tables import TomlDocument

RULES = load_rules()
_NAMES = [rule.name for rule in RULES]

# The fault table of the engines (advisories, issues, pull requests), by what a rule has to cite.
_FAULTS = [
    "CVE-2025-25183", "GHSA-rm76-4mrf-v9r8", "CVE-2025-46570", "GHSA-4qjh-9fv9-r85r",
    "CVE-2025-46722", "GHSA-c65p-x677-fgj6", "CVE-2026-105754", "GHSA-ph72-cqr5-qpp7",
    "CVE-2026-105756", "CVE-2026-111392", "CVE-2026-94627", "GHSA-v97p-wpxp-px84",
    "CVE-2026-65104",
    "vllm/issues/44701", "vllm/pull/51899", "vllm/issues/42125", "vllm/issues/30931",
    "vllm/pull/52655", "vllm/issues/48352", "vllm/issues/44939", "vllm/pull/44950",
    "vllm/issues/55547", "vllm/issues/53582", "vllm/issues/55439", "vllm/issues/56655",
    "vllm/issues/42119", "vllm/pull/54727", "vllm/issues/49261", "vllm/issues/56311",
    "vllm/pull/45767", "vllm/issues/9744", "vllm/pull/46125", "sglang/issues/26792",
    "sglang/pull/29443", "sglang/issues/24638", "sglang/pull/25351", "sglang/issues/37160",
    "LMCache/issues/4825", "LMCache/issues/2878", "LMCache/issues/2880", "LMCache/issues/2961",
    "vllm/issues/44250", "vllm/pull/45549", "LMCache/issues/3301", "LMCache/issues/4086",
    "sglang/issues/25462", "TensorRT-LLM/issues/14603", "TensorRT-LLM/pull/14800",
    "dynamo/issues/8340", "llm-d-router/issues/1389", "llm-d-router/issues/2927",
    "smg/issues/2420", "sglang/issues/24568", "vllm/issues/53912", "vllm/issues/55600",
    "vllm/issues/45238", "vllm/issues/40624", "vllm/issues/54360", "vllm/issues/53670",
    "vllm/issues/40696", "vllm/pull/27431", "transformers/issues/25104",
]  # fmt: skip


def test_there_are_at_least_forty_rules() -> None:
    assert len(RULES) >= 40


@pytest.mark.parametrize("rule", RULES, ids=_NAMES)
def test_rule_has_an_example_that_fires_and_one_that_is_silent(rule: Rule) -> None:
    found = [
        any(not finding.startswith("inconclusive") for finding in example.findings)
        for example in examples_of(rule)
    ]

    assert any(found)
    assert any(not example.findings for example in examples_of(rule))


@pytest.mark.parametrize("rule", RULES, ids=_NAMES)
def test_examples_end_a_rules_file(rule: Rule) -> None:
    """What is read of a rule, without its examples, is all that its file says."""
    path = rules_folder() / f"{rule.name}.toml"

    assert read_rule(TomlDocument.read(path), path) == rule


@pytest.mark.parametrize("rule", RULES, ids=_NAMES)
def test_rule_says_why_what_to_do_and_where_to_read_more(rule: Rule) -> None:
    assert rule.title[0].isupper()
    assert not rule.title.endswith(".")
    assert not re.search(r"\d", rule.name), "names hold no numbers"
    assert min(len(rule.rationale), len(rule.remediation), len(rule.false_positives)) > 10
    assert rule.references
    assert all(reference.startswith("https://") for reference in rule.references)


@pytest.mark.parametrize("fault", _FAULTS)
def test_every_known_fault_is_cited_by_a_rule(fault: str) -> None:
    assert any(
        fault in reference or fault in rule.title for rule in RULES for reference in rule.references
    )


@pytest.mark.parametrize("predicate", PREDICATES.names)
def test_disabled_predicate_makes_an_example_of_each_of_its_rules_fail(
    predicate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [rule for rule in RULES if rule.predicate == predicate]
    silenced = _silenced(PREDICATES[predicate])
    original = Registry.__getitem__

    def member(registry: Registry[Any], name: str) -> Any:
        return (
            silenced if registry is PREDICATES and name == predicate else original(registry, name)
        )

    monkeypatch.setattr(Registry, "__getitem__", member)

    assert rules, "a predicate that no rule asks"
    for rule in rules:
        assert not _holds(rule), rule.name


def _silenced(spec: PredicateSpec) -> PredicateSpec:
    return replace(spec, observe=lambda subject, params: ())


def _holds(rule: Rule) -> bool:
    return all(
        run_example(rule, example) == tuple(sorted(example.findings))
        for example in examples_of(rule)
    )


def _without_one(rule: Rule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameters without one of them, one entry of a table, or one field of `differs`."""
    known = PREDICATES[rule.predicate].parameters
    for key, value in rule.params.items():
        rest = {name: item for name, item in rule.params.items() if name != key}
        if isinstance(value, dict):
            for entry in value:
                part = {name: item for name, item in value.items() if name != entry}
                yield f"{key}.{entry}", {**rest, **({key: part} if part else {})}
        elif key == "differs" and len(value) > 1:
            for entry in value:
                yield f"{key} {entry}", {**rest, key: [item for item in value if item != entry]}
        elif not known[key].is_required:
            yield key, rest


# Where a deployment rule looks: held for all of them in test_ranges.py.
_PLACES = {("deployment", key) for key in ("engines", "other_than", "tiers", "kinds")}
_UNPINNED = {
    ("adapter-revision-mismatch", "by"),  # splits findings, finds the same pairs
    # One process has one format and one encoding: its own pool can't share across them.
    ("store-serves-other-kv-format", "kinds"),
    ("store-serves-other-positions", "kinds"),
    # Every store that is known keys the model's name.
    ("store-serves-other-model", "differs model"),
}
_MUTANTS = [
    pytest.param(replace(rule, params=params), id=f"{rule.name} without {left_out}")
    for rule in RULES
    for left_out, params in _without_one(rule)
    if (rule.scope, left_out) not in _PLACES and (rule.name, left_out) not in _UNPINNED
]


@pytest.mark.parametrize("mutant", _MUTANTS)
def test_each_condition_of_a_rule_is_pinned_by_an_example(mutant: Rule) -> None:
    assert not _holds(mutant)


def test_readme_of_the_rules_is_current() -> None:
    """`python -m prefixaudit.audit.page` writes it."""
    readme = rules_folder() / "README.md"

    assert readme.read_text(encoding="utf-8") == rules_page(RULES)


@pytest.mark.parametrize("rule", RULES, ids=_NAMES)
def test_page_of_a_rule_names_all_that_its_file_says(rule: Rule) -> None:
    lines = page_of(rule.name)
    text = " ".join(" ".join(lines).split())

    for part in (rule.title, rule.rationale, rule.remediation, rule.false_positives):
        assert " ".join(part.split()) in text
    assert max(len(line) for line in lines if "https://" not in line) <= 110
