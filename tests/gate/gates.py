"""Gates to render: findings with texts that every format has to escape."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from prefixaudit.core.finding import (
    Confidence,
    Finding,
    Location,
    Observation,
    Severity,
    SharedBy,
    Verdict,
)
from prefixaudit.core.gate import BudgetResult, Change, GateFinding, GateReport
from prefixaudit.core.rule import Rule

NASTY = '100% <b>"x"</b>|`a`\r\n::error::@team [l](http://x) \x1b[31m,: \ud800 & ]]>'


def rule(name: str) -> Rule:
    return Rule(
        name=name,
        title=f"Title of {name}",
        severity=Severity.HIGH,
        confidence=Confidence.MEDIUM,
        scope="deployment",
        since="0.1.0",
        status="preview",
        predicate="server-facts",
        params={},
        rationale="Because\nof this.\n\nAnd that.",
        remediation="Do this.",
        false_positives="None.",
        references=("https://example.com/a",),
        path=f"rules/{name}.toml",
    )


def finding(
    name: str,
    subject: str = "server a",
    *,
    severity: Severity = Severity.HIGH,
    verdict: Verdict = "found",
    message: str = "what was found",
    location: Location | None = None,
    evidence: tuple[SharedBy, ...] = (),
) -> Finding:
    return Finding(
        rule=name,
        title=f"Title of {name}",
        severity=severity if verdict == "found" else Severity.INFORMATIONAL,
        severity_if_true=severity,
        confidence=Confidence.MEDIUM,
        observation=Observation(
            subject=subject, message=message, verdict=verdict, location=location, evidence=evidence
        ),
        remediation="Do this.",
    )


def a_gate() -> GateReport:
    """One finding of each kind, two budgets, a change."""
    place = Location(path="deploy/a b,c:d%.yaml", line=7)
    evidence = (
        SharedBy(
            reader="r2",
            donor="r1",
            num_tokens=64,
            reader_source="logs/x.jsonl:5",
            donor_source="logs/x.jsonl:2",
        ),
        SharedBy(
            reader="r3",
            donor="r1",
            num_tokens=64,
            reader_source="logs/x.jsonl:6",
            donor_source="logs/x.jsonl:2",
        ),
    )
    failing = finding("first-rule", message=NASTY, location=place, evidence=evidence)
    return GateReport(
        version="0.1.0",
        deployment_paths=("deploy/prefixaudit.toml",),
        log_paths=("logs/x.jsonl",),
        rules=(rule("first-rule"), rule("second-rule"), rule("third-rule")),
        fail_on=Severity.MEDIUM,
        findings=(
            GateFinding(finding=failing, status="new", fails=True),
            GateFinding(
                finding=finding("second-rule", severity=Severity.LOW), status="new", fails=False
            ),
            GateFinding(
                finding=finding("second-rule", "open", verdict="inconclusive"),
                status="new",
                fails=False,
            ),
            GateFinding(finding=finding("second-rule", "old"), status="known", fails=False),
            GateFinding(
                finding=finding("third-rule", NASTY),
                status="ignored",
                fails=False,
                reason=NASTY,
                owner="owner@example.com",
                expires=date(2026, 12, 31),
            ),
        ),
        budgets=(
            BudgetResult(
                name="min_token_hit_rate",
                limit=0.5,
                value=0.25,
                verdict="missed",
                about="cached / prompt tokens",
            ),
            BudgetResult(
                name="max_cross_tenant_private_tokens",
                limit=0,
                value=0,
                verdict="met",
                about="private tokens",
            ),
        ),
        changes=(Change(kind="hits", subject="log", what="rate", before="1", after="2"),),
        figures={"token_hit_rate": 0.25},
        has_baseline=True,
        not_understood=("a: version of vllm",),
        notes=("a note",),
    )


def clean_gate() -> GateReport:
    return replace(a_gate(), findings=(), budgets=())
