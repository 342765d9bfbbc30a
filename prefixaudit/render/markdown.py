"""Markdown, for a comment on a pull request: verdict, findings, budgets, changes.

Text from outside is escaped: no markup, no mentions, no links but those of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from prefixaudit.core.gate import GateFinding, GateReport, as_gate
from prefixaudit.core.report import Renderer, RenderOptions, Report
from prefixaudit.render._gate import (
    budget_text,
    by_rule,
    evidence_of,
    ignored_text,
    message_of,
    place_of,
    plain,
    sorted_out,
)
from prefixaudit.render._gate_text import change_text

_SPECIAL: Final = re.compile(r"[\\`*_\[\]#|~]")
_EFFECTS: Final = {"better": "better", "worse": "worse", "neutral": ""}


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as Markdown (GitHub's and GitLab's flavours)."""
    return "\n".join(_lines(gate)) + "\n"


def render(report: Report, options: RenderOptions) -> str:
    """Return a report's findings as Markdown."""
    return render_gate(as_gate(report), options)


def _lines(gate: GateReport) -> Iterator[str]:
    shown = sorted_out(gate)
    yield f"## {gate.title}: {_escaped(gate.verdict)}"
    yield ""
    read = ", ".join(_code(path) for path in (*gate.deployment_paths, *gate.log_paths))
    yield f"{len(gate.rules)} rules on {read}. prefixaudit {_escaped(gate.version)}."
    yield from _findings("Findings", shown.failing, gate)
    yield from _findings("Below the bound", shown.passing, gate)
    if gate.budgets:
        yield from ("", "### Budgets", "", "| | budget |", "| --- | --- |")
        for budget in gate.budgets:
            yield f"| {budget.verdict} | {_escaped(budget_text(budget))} |"
    if gate.changes is not None:
        yield from ("", "### What the change does", "")
        if not gate.changes:
            yield "Nothing to keys, hits or findings."
        else:
            yield from ("| | |", "| --- | --- |")
        for change in gate.changes:
            yield f"| {_EFFECTS[change.effect]} | {_escaped(change_text(change))} |"
    rest = [
        f"{_code(rule)}: {_escaped(message_of(items[0].finding))}"
        + (f"; and {len(items) - 1:,} more such" if len(items) > 1 else "")
        for rule, items in by_rule(shown.open_questions).items()
    ]
    yield from _folded("kinds of questions without an answer", rest)
    rest = [
        f"{_code(i.finding.rule)}: {_escaped(i.finding.observation.subject)}" for i in shown.known
    ]
    yield from _folded("known findings (baseline)", rest)
    rest = [f"{_code(i.finding.rule)}: {_escaped(ignored_text(i))}" for i in shown.ignored]
    yield from _folded("ignored findings", rest)
    rest = [_escaped(note) for note in (*gate.notes, *gate.not_understood)]
    yield from _folded("notes", rest)


def _findings(title: str, items: Sequence[GateFinding], gate: GateReport) -> Iterator[str]:
    if not items:
        return
    yield from (
        "",
        f"### {title}",
        "",
        "| severity | rule | what | where |",
        "| --- |" + " --- |" * 3,
    )
    for item in items:
        finding = item.finding
        place = place_of(finding, gate)
        line = f":{place.line}" if place.line else ""
        what = "<br>".join(_escaped(t) for t in (message_of(finding), *evidence_of(finding)))
        where = _code(f"{place.path}{line}")
        yield f"| {finding.severity.label} | {_code(finding.rule)} | {what} | {where} |"


def _folded(title: str, rows: Sequence[str]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"<details><summary>{len(rows)} {title}</summary>", "")
    for row in rows:
        yield f"- {row}"
    yield from ("", "</details>")


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is: no markup, HTML, mention or reference."""
    flat = plain(text)
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = flat.replace("@", "&#64;")
    # A bare address would become a link.
    flat = re.sub(r"(?i)\b(https?|ftp|mailto):", r"\1&#58;", flat).replace("www.", "www&#46;")
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", flat).replace("&\\#", "&#")


def _code(text: str) -> str:
    """Return text as code, in a table cell too."""
    flat = plain(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", flat)), default=0) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


RENDERER = Renderer(
    title="Markdown, for a comment on a pull request", render=render, render_gate=render_gate
)
