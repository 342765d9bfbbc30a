"""A folder of published templates, counted: PREFIXAUDIT_TEMPLATES names it (llama.cpp's
`models/templates`, 70 templates as of llama-cpp-python 0.3.36).

The expected counts were made with transformers alone, without this package, in another
environment.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from prefixaudit.core.template import TemplateReport
from prefixaudit.templates import check_templates, load_source
from tests.templates.rendering import answer, rules

FOLDER = os.environ.get("PREFIXAUDIT_TEMPLATES")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="PREFIXAUDIT_TEMPLATES isn't set")

# Where a template refuses the system message, the chats here have none: one more `yes`.
COUNTS = {
    "plain-turns": (48, 18, 4),
    "turns-with-tools": (49, 19, 2),
    "thinking-off": (48, 18, 4),
    "reasoning-kept": (11, 55, 4),
    "think-text-kept": (49, 17, 4),
    "tool-order": (61, 7, 2),
    "developer-role": (24, 34, 12),
}
CLOCKS = [
    "Apertus",
    "Mistral-Small-3.2",
    "granite-3.3",
    "Llama-3.2",
    "muse-glimmer",
    "gpt-oss",
    "Solar-Open",
]
PRINT_NONE = ["GLM-4.6", "GLM-4.7", "MiniMax-M2", "command-r-plus"]


@cache
def reports() -> dict[str, TemplateReport]:
    assert FOLDER is not None
    return {
        path.stem: check_templates(load_source(path, None))
        for path in sorted(Path(FOLDER).glob("*.jinja"))
    }


def with_rule(rule: str) -> list[str]:
    return [name for name, report in reports().items() if rule in rules(report)]


@pytest.mark.parametrize("question", COUNTS)
def test_survey_counts(question: str) -> None:
    found = Counter(answer(report, question).verdict for report in reports().values())

    assert (found["yes"], found["no"], found["refused"]) == COUNTS[question]


@pytest.mark.parametrize(
    ("rule", "families"),
    [
        ("clock-each-day", CLOCKS),
        ("prints-none", PRINT_NONE),
        ("needs-forbidden", ["Kimi-K2-Instruct", "Kimi-K2-Thinking"]),
        ("moves-system-text", ["Mistral-Nemo"]),
        ("moves-tools", ["Mistral-Nemo", "Mistral-Small-3.2"]),
        ("moves-fixed-text", ["command-r-plus"]),
    ],
)
def test_survey_names(rule: str, families: list[str]) -> None:
    found = with_rule(rule)

    assert len(found) == len(families)
    assert all(any(family in name for name in found) for family in families)
