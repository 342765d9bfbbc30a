"""What a gate says of a deployment: findings, budgets, a change's effects; and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, TypeAlias

from prefixaudit.core.finding import Finding, Severity
from prefixaudit.core.report import Report
from prefixaudit.core.rule import Rule
from prefixaudit.wording import plural

FindingStatus: TypeAlias = Literal["new", "known", "ignored"]
BudgetVerdict: TypeAlias = Literal["met", "missed", "not-known"]
ChangeKind: TypeAlias = Literal["server", "key", "hits", "finding"]
ChangeEffect: TypeAlias = Literal["better", "worse", "neutral"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """A finding and what the gate makes of it.

    `known`: it stands in the baseline. `ignored`: an ignore of the deployment covers it, for
    `reason`, until `expires`; `owner` answers for it. `fails`: it makes the gate fail.
    """

    finding: Finding
    status: FindingStatus
    fails: bool
    reason: str = ""
    owner: str = ""
    expires: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetResult:
    """One budget: its bound, the figure (None: not known), and what stands behind the figure."""

    name: str
    limit: float
    value: float | None
    verdict: BudgetVerdict
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that differs between the old deployment and the new one; "" is: not there."""

    kind: ChangeKind
    subject: str
    what: str
    before: str
    after: str
    effect: ChangeEffect = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """The result of a gate.

    `rules` are those that ran. `figures` are the log's (see gate/figures.py), empty without one;
    `has_baseline`: findings were compared with one. `changes` is None where no old deployment was
    given. `not_understood` is what deployment files hold that stayed unknown; `incomplete` says why
    there is no answer. `title` says what was looked at.
    """

    version: str
    deployment_paths: tuple[str, ...]
    log_paths: tuple[str, ...]
    rules: tuple[Rule, ...]
    fail_on: Severity | None
    findings: tuple[GateFinding, ...]
    budgets: tuple[BudgetResult, ...] = ()
    changes: tuple[Change, ...] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    has_baseline: bool = False
    not_understood: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    report: Report | None = None
    incomplete: str | None = None
    title: str = "Prefix cache gate"

    @property
    def failing(self) -> tuple[GateFinding, ...]:
        """Return the findings that make the gate fail."""
        return tuple(item for item in self.findings if item.fails)

    @property
    def missed(self) -> tuple[BudgetResult, ...]:
        """Return the budgets that are missed."""
        return tuple(budget for budget in self.budgets if budget.verdict == "missed")

    @property
    def exit_code(self) -> int:
        """Return 3 where the audit is incomplete, 1 where something fails, else 0."""
        if self.incomplete is not None:
            return 3
        return 1 if self.failing or self.missed else 0

    @property
    def verdict(self) -> str:
        """Return the outcome in one sentence."""
        if self.incomplete is not None:
            return f"incomplete: {self.incomplete}"
        parts = []
        if self.failing:
            at = "" if self.fail_on is None else f" at or above {self.fail_on.label}"
            parts.append(plural(len(self.failing), "finding") + at)
        if self.missed:
            parts.append(plural(len(self.missed), "budget") + " missed")
        return "failed: " + ", ".join(parts) if parts else "passed"


def as_gate(report: Report, rules: Sequence[Rule] = ()) -> GateReport:
    """Return a report's findings as a gate that fails on none of them."""
    audit = report.audit
    return GateReport(
        version=report.version,
        deployment_paths=() if report.deployment_path is None else (report.deployment_path,),
        log_paths=tuple(file.path for file in report.log.files),
        rules=tuple(rules),
        fail_on=None,
        findings=tuple(
            GateFinding(finding=finding, status="new", fails=False)
            for finding in (() if audit is None else audit.findings)
        ),
        report=report,
        incomplete=report.incomplete,
        title="Prefix cache audit",
    )
