"""GitHub Actions annotations: workflow commands, one a finding, at its file and line.

What fails is an error, other findings of medium severity or more a warning, the rest a notice.
Known and ignored findings are left out; questions without an answer are one notice together, since
GitHub shows ten of a level at most. `%`, CR and LF are escaped, in properties `:` and `,` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from prefixaudit.core.finding import Severity
from prefixaudit.core.gate import GateFinding, GateReport, as_gate
from prefixaudit.core.report import Renderer, RenderOptions, Report
from prefixaudit.render._gate import (
    budget_text,
    by_rule,
    evidence_of,
    message_of,
    place_of,
    plain,
    sorted_out,
)

# A log viewer would run them; CR and LF have escapes of their own.
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as workflow commands, and its verdict as the last of them."""
    return "\n".join(_lines(gate)) + "\n"


def render(report: Report, options: RenderOptions) -> str:
    """Return a report's findings as workflow commands."""
    return render_gate(as_gate(report), options)


def _lines(gate: GateReport) -> Iterator[str]:
    shown = sorted_out(gate)
    for item in (*shown.failing, *shown.passing):
        yield _annotation(item, gate)
    if shown.open_questions:
        names = ", ".join(by_rule(shown.open_questions))
        message = f"without an answer: {len(shown.open_questions):,} ({names})"
        yield _command("notice", {"title": "prefixaudit"}, plain(message))
    for budget in gate.budgets:
        if budget.verdict != "met":
            yield _command("error", {"title": f"budget {budget.name}"}, budget_text(budget))
    level = "notice" if gate.exit_code == 0 else "error"
    yield _command(level, {"title": "prefixaudit"}, plain(gate.verdict))


def _annotation(item: GateFinding, gate: GateReport) -> str:
    finding = item.finding
    level = "notice"
    if item.fails:
        level = "error"
    elif finding.severity >= Severity.MEDIUM:
        level = "warning"
    place = place_of(finding, gate)
    properties = {"file": place.path}
    if place.line:
        properties["line"] = str(place.line)
    properties["title"] = f"{finding.rule} ({finding.severity.label})"
    return _command(level, properties, "\n".join((message_of(finding), *evidence_of(finding))))


def _command(level: str, properties: dict[str, str], message: str) -> str:
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {listed}::{_data(message)}"


def _data(text: str) -> str:
    text = text.encode("utf-8", errors="backslashreplace").decode("utf-8")
    text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


RENDERER = Renderer(title="GitHub Actions annotations", render=render, render_gate=render_gate)
