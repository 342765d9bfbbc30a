"""A gate as JSON, for programs; within a `schema_version` keys are added, not changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from prefixaudit.core.gate import GateFinding, GateReport
from prefixaudit.core.report import RenderOptions
from prefixaudit.json_text import json_text
from prefixaudit.printable import printable_lines
from prefixaudit.render._gate import place_of

SCHEMA_VERSION: Final = 1


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as indented JSON."""
    return json_text(as_values(gate), escape=printable_lines)


def as_values(gate: GateReport) -> dict[str, Any]:
    """Return the gate as plain values, ready for any serializer."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": gate.version},
        "exit_code": gate.exit_code,
        "verdict": gate.verdict,
        "incomplete": gate.incomplete,
        "deployments": list(gate.deployment_paths),
        "logs": list(gate.log_paths),
        "fail_on": "never" if gate.fail_on is None else gate.fail_on.label,
        "num_rules": len(gate.rules),
        "num_failing": len(gate.failing),
        "findings": [_finding(item, gate) for item in gate.findings],
        "budgets": [asdict(budget) for budget in gate.budgets],
        "figures": dict(gate.figures),
        "changes": None if gate.changes is None else [asdict(change) for change in gate.changes],
        "not_understood": list(gate.not_understood),
        "notes": list(gate.notes),
    }


def _finding(item: GateFinding, gate: GateReport) -> dict[str, Any]:
    finding, observation = item.finding, item.finding.observation
    place = place_of(finding, gate)
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": finding.severity.label,
        "severity_if_true": finding.severity_if_true.label,
        "confidence": finding.confidence.label,
        "verdict": observation.verdict,
        "status": item.status,
        "fails": item.fails,
        "ignore": None
        if item.status != "ignored"
        else {
            "reason": item.reason,
            "owner": item.owner,
            "expires": None if item.expires is None else item.expires.isoformat(),
        },
        "subject": observation.subject,
        "message": observation.message,
        "fingerprint": finding.fingerprint,
        "location": {"path": place.path, "line": place.line or None},
        "num_requests": len(observation.requests),
        "num_tokens": observation.num_tokens,
        "evidence": [asdict(pair) for pair in observation.evidence],
        "remediation": finding.remediation,
    }
