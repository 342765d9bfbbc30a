"""SARIF 2.1.0 (OASIS, 2020), for code scanning: a result a finding, a rule a rule.

Fingerprints stay equal between runs while rule and subject do. Ignored findings are suppressed,
those of a baseline unchanged; a question without an answer is a result of kind `review`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from prefixaudit.core.finding import Confidence, Finding, Location, Severity
from prefixaudit.core.gate import GateFinding, GateReport, as_gate
from prefixaudit.core.report import Renderer, RenderOptions, Report
from prefixaudit.core.rule import Rule
from prefixaudit.render._gate import budget_text, evidence_of, message_of, place_of, plain

SCHEMA_URI: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS: Final[Mapping[Severity, str]] = {
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
    Severity.INFORMATIONAL: "note",
}
# How code scanning sorts: CVSS-like scores, and the precision of a rule.
_SCORES: Final[Mapping[Severity, str]] = {
    Severity.HIGH: "8.0",
    Severity.MEDIUM: "5.5",
    Severity.LOW: "3.0",
    Severity.INFORMATIONAL: "1.0",
}
_PRECISIONS: Final[Mapping[Confidence, str]] = {
    Confidence.HIGH: "high",
    Confidence.MEDIUM: "medium",
    Confidence.LOW: "low",
}


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as a SARIF log with one run."""
    rules = {rule.name: rule for rule in gate.rules}
    named = list(dict.fromkeys((*rules, *(item.finding.rule for item in gate.findings))))
    results = [_result(item, gate, named.index(item.finding.rule)) for item in gate.findings]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "prefixaudit",
                "semanticVersion": gate.version,
                "rules": [_rule(name, rules.get(name), gate) for name in named],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": gate.incomplete is None,
                "exitCode": gate.exit_code,
                "toolExecutionNotifications": list(_notifications(gate)),
            }
        ],
        "results": results,
    }
    log = {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def render(report: Report, options: RenderOptions) -> str:
    """Return a report's findings as a SARIF log."""
    return render_gate(as_gate(report), options)


def _rule(name: str, rule: Rule | None, gate: GateReport) -> dict[str, Any]:
    if rule is None:
        finding = next(item.finding for item in gate.findings if item.finding.rule == name)
        return _descriptor(name, finding.title, finding.severity_if_true, finding.confidence)
    value = _descriptor(name, rule.title, rule.severity, rule.confidence)
    value["fullDescription"] = {"text": _text(rule.rationale)}
    help_text = f"{_text(rule.remediation)}\n\nFalse positives: {_text(rule.false_positives)}"
    value["help"] = {"text": help_text}
    if rule.references:
        value["helpUri"] = rule.references[0]
        value["help"]["text"] += "\n\n" + "\n".join(_text(item) for item in rule.references)
    return value


def _descriptor(
    name: str, title: str, severity: Severity, confidence: Confidence
) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": _text(title)},
        "defaultConfiguration": {"level": _LEVELS[severity]},
        "properties": {
            "tags": ["security", "prefix-cache"],
            "security-severity": _SCORES[severity],
            "precision": _PRECISIONS[confidence],
        },
    }


def _result(item: GateFinding, gate: GateReport, rule_index: int) -> dict[str, Any]:
    finding = item.finding
    is_found = finding.observation.verdict == "found"
    place = place_of(finding, gate)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "kind": "fail" if is_found else "review",
        "level": _LEVELS[finding.severity] if is_found else "none",
        "message": {"text": " ".join((message_of(finding), *_evidence(finding)))},
        "locations": [_location(place)],
        "partialFingerprints": {"prefixauditFinding/v1": finding.fingerprint},
    }
    related = list(_related(finding, place))
    if related:
        result["relatedLocations"] = related
    if gate.has_baseline:
        result["baselineState"] = "unchanged" if item.status == "known" else "new"
    if item.status == "ignored":
        result["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": _text(item.reason),
                "properties": {"owner": _text(item.owner), "expires": str(item.expires)},
            }
        ]
    return result


def _evidence(finding: Finding) -> Iterator[str]:
    for sentence in evidence_of(finding):
        yield f"{sentence}."


def _related(finding: Finding, place: Location) -> Iterator[dict[str, Any]]:
    """Yield the log lines of the evidence, each file and line once."""
    seen = {(place.path, place.line)}
    for pair in finding.observation.evidence:
        for source in (pair.reader_source, pair.donor_source):
            path, separator, line = source.rpartition(":")
            if not separator or not line.isdecimal() or (path, int(line)) in seen:
                continue
            seen.add((path, int(line)))
            yield {"id": len(seen) - 1, **_location(Location(path=path, line=int(line)))}


def _location(place: Location) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.path)}}
    if place.line > 0:
        physical["region"] = {"startLine": place.line}
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    """Return a path as a URI: relative to the repository's root where it is relative."""
    pure = PurePath(path)
    text = pure.as_posix()
    encoded = quote(text.encode("utf-8", errors="surrogateescape"), safe="/")
    return f"file://{encoded}" if pure.is_absolute() else encoded


def _notifications(gate: GateReport) -> Iterator[dict[str, Any]]:
    if gate.incomplete is not None:
        yield {"level": "error", "message": {"text": _text(gate.incomplete)}}
    for budget in gate.budgets:
        if budget.verdict == "missed":
            yield {"level": "error", "message": {"text": f"budget missed: {budget_text(budget)}"}}
    for note in gate.not_understood:
        yield {"level": "note", "message": {"text": f"not known: {_text(note)}"}}
    for note in gate.notes:
        yield {"level": "note", "message": {"text": _text(note)}}


def _text(text: str) -> str:
    """Return text of a rule or a file: paragraphs stay, everything else as in `plain`."""
    return "\n\n".join(
        plain(" ".join(paragraph.split())) for paragraph in text.strip().split("\n\n")
    )


RENDERER = Renderer(title="SARIF 2.1.0, for code scanning", render=render, render_gate=render_gate)
