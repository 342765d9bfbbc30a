"""JUnit XML: a test case a rule and a budget, for CI systems that show test reports.

A case fails where its rule finds something that fails the gate; what doesn't fail it (below the
bound, known, ignored, without an answer) is told in the case's output.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from prefixaudit.core.gate import GateFinding, GateReport, as_gate
from prefixaudit.core.report import Renderer, RenderOptions, Report
from prefixaudit.render._gate import (
    budget_text,
    evidence_of,
    ignored_text,
    message_of,
    place_of,
    plain,
)


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as one test suite."""
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name="prefixaudit")
    names = dict.fromkeys(
        (*(rule.name for rule in gate.rules), *(item.finding.rule for item in gate.findings))
    )
    titles = {rule.name: rule.title for rule in gate.rules}
    for name in names:
        items = [item for item in gate.findings if item.finding.rule == name]
        _rule_case(suite, name, titles.get(name, name), items, gate)
    for budget in gate.budgets:
        case = _case(suite, "prefixaudit.budgets", budget.name)
        if budget.verdict == "missed":
            _text_child(case, "failure", budget_text(budget), budget_text(budget), kind="budget")
        elif budget.verdict == "not-known":
            _text_child(case, "error", "the figure isn't known", budget_text(budget), kind="budget")
        else:
            ET.SubElement(case, "system-out").text = plain(budget_text(budget))
    if gate.incomplete is not None:
        case = _case(suite, "prefixaudit", "complete")
        _text_child(case, "error", gate.incomplete, gate.incomplete, kind="incomplete")
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }
    for element in (suites, suite):
        for name, count in counts.items():
            element.set(name, str(count))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def render(report: Report, options: RenderOptions) -> str:
    """Return a report's findings as one test suite."""
    return render_gate(as_gate(report), options)


def _rule_case(
    suite: ET.Element, name: str, title: str, items: Sequence[GateFinding], gate: GateReport
) -> None:
    case = _case(suite, "prefixaudit.rules", name)
    failing = [item for item in items if item.fails]
    if failing:
        text = "\n".join(_lines(item, gate) for item in failing)
        severity = max(item.finding.severity for item in failing)
        _text_child(case, "failure", title, text, kind=severity.label)
    others = [item for item in items if not item.fails]
    if others:
        ET.SubElement(case, "system-out").text = "\n".join(_lines(item, gate) for item in others)


def _lines(item: GateFinding, gate: GateReport) -> str:
    finding = item.finding
    place = place_of(finding, gate)
    line = f":{place.line}" if place.line else ""
    head = f"{plain(place.path)}{line}: {finding.severity.label}: {message_of(finding)}"
    if item.status == "known":
        head += " [known]"
    if item.status == "ignored":
        head += f" [ignored: {ignored_text(item)}]"
    return "\n".join((head, *(f"  {sentence}" for sentence in evidence_of(finding))))


def _case(suite: ET.Element, class_name: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=class_name, name=plain(name), time="0")


def _text_child(case: ET.Element, tag: str, message: str, text: str, *, kind: str) -> None:
    child = ET.SubElement(case, tag, message=plain(message), type=kind)
    child.text = text


RENDERER = Renderer(
    title="JUnit XML, for CI systems that show test reports", render=render, render_gate=render_gate
)
