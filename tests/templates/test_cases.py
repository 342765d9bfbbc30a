"""Templates of the cases after public bug reports: the check finds each fault without the log."""

from __future__ import annotations

from functools import cache

import pytest

from prefixaudit.core.template import TemplateReport
from prefixaudit.templates import check_templates, load_source
from tests.templates.rendering import ROOT, answer, rules

# What the case's report was about, as a rule or as a question that is answered with yes.
FAULTS = {
    "B003": "clock-each-day",
    "B004": "generation-tail",
    "B006": "drops-reasoning",
    "B009": "moves-tools",
    "B011": "and-tokenizer-begin",
    "B017": "prints-none",
}
ANSWERS = {"B007": "tool-order", "B012": "argument-spelling"}


@cache
def report(name: str) -> TemplateReport:
    [folder] = (ROOT / "tests" / "data" / "cases").glob(f"{name}-*")
    return check_templates(load_source(folder, None))


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_the_case_is_found(name: str) -> None:
    assert FAULTS[name] in rules(report(name))


@pytest.mark.parametrize("name", ANSWERS)
def test_trait_of_the_case_is_found(name: str) -> None:
    assert answer(report(name), ANSWERS[name]).verdict == "yes"


def test_tail_of_the_generation_prompt_is_not_the_whole_system_prompt() -> None:
    """Six tokens by the case's expected answer, and never the system prompt."""
    found = answer(report("B004"), "thinking-off")

    assert found.num_lost == 6


@pytest.mark.parametrize("name", ["B001", "B013", "B015"])
def test_faults_of_the_client_are_not_the_template_s(name: str) -> None:
    """A clock in the client's text, a billing header, a sliding window: the template is stable."""
    moved = {"rewrites-history", "moves-tools", "moves-system-text", "clock-each-day"}

    assert not moved & rules(report(name))
