"""Every rule finds in its examples exactly what they say."""

from __future__ import annotations

import pytest

from prefixaudit.audit.examples import run_example
from prefixaudit.audit.rules import examples_of, load_rules
from prefixaudit.core.rule import Rule, RuleExample

_EXAMPLES = [(rule, example) for rule in load_rules() for example in examples_of(rule)]


@pytest.mark.parametrize(
    ("rule", "example"),
    _EXAMPLES,
    ids=[f"{rule.name}: {example.name}" for rule, example in _EXAMPLES],
)
def test_example_finds_what_it_says(rule: Rule, example: RuleExample) -> None:
    assert run_example(rule, example) == tuple(sorted(example.findings))
