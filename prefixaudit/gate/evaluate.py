"""`run_gate`: runs the rules over a deployment, with a log or without one, and decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import prefixaudit
from prefixaudit.audit.facts import adapters_of, has_tenants, servers_of, tiers_of
from prefixaudit.audit.findings import findings_of
from prefixaudit.audit.rules import load_rules
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Finding, Severity
from prefixaudit.core.gate import BudgetResult, BudgetVerdict, GateFinding, GateReport
from prefixaudit.core.rule import Rule
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.policy import AuditPolicy, Ignore
from prefixaudit.gate.baseline import Baseline
from prefixaudit.gate.changes import changes_between
from prefixaudit.gate.figures import ABOUT, figures_of

if TYPE_CHECKING:
    from prefixaudit.analysis import AnalysisOptions, Progress
    from prefixaudit.core.report import Report

# Figures are quotients and differences of them: 0.52 - 0.50 is more than 0.02.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What wins over the deployment's own policy (None: the policy holds), and the day it is."""

    fail_on: Severity | None = None
    never_fails: bool = False
    fail_on_inconclusive: bool | None = None
    rule_folders: tuple[Path, ...] = ()
    baseline: Baseline | None = None
    accepts_findings: bool = False
    today: date | None = None


def run_gate(
    deployment: Deployment,
    *,
    deployment_paths: Sequence[str],
    log_paths: Sequence[str] = (),
    options: GateOptions | None = None,
    old: Deployment | None = None,
    analysis: AnalysisOptions | None = None,
    progress: Progress | None = None,
) -> GateReport:
    """Return what the rules find and which budgets are missed.

    Without a log only rules about deployments run, and no budget is checked. Findings of the
    baseline are known, and only new ones fail; with `accepts_findings` all of them are. `old` is
    compared with the deployment, under the same log.

    Raises ConfigurationError and UsageError for wrong settings, IncompleteError for a log that
    can't be read or a rule that fails.
    """
    options = options or GateOptions()
    rules = load_rules(options.rule_folders)
    report = _analysed(deployment, log_paths, options, analysis, progress)
    findings = _placed(_findings(deployment, rules, report), deployment)
    policy = _policy(deployment.policy, options)
    figures = {} if report is None else figures_of(report)
    baseline = options.baseline
    today = options.today or date.today()
    judged = tuple(
        _judged(finding, policy, baseline, today, accepts=options.accepts_findings)
        for finding in findings
    )
    budgets, notes = _budgets(policy, figures, baseline, has_log=report is not None)
    notes += _notes_on_ignores(policy, findings, rules, today)
    unknown = [budget.name for budget in budgets if budget.verdict == "not-known"]
    incomplete = None if report is None else report.incomplete
    if incomplete is None and unknown:
        incomplete = f"the log doesn't give the figures of these budgets: {', '.join(unknown)}"
    changes = None
    if old is not None:
        old_report = _analysed(old, log_paths, options, analysis, progress)
        changes = changes_between(
            old,
            deployment,
            old_findings=_findings(old, rules, old_report),
            new_findings=findings,
            old_figures={} if old_report is None else figures_of(old_report),
            new_figures=figures,
        )
    return GateReport(
        version=prefixaudit.__version__,
        deployment_paths=tuple(deployment_paths),
        log_paths=tuple(log_paths),
        rules=rules,
        fail_on=policy.fail_on,
        findings=judged,
        budgets=tuple(budgets),
        changes=changes,
        figures=figures,
        has_baseline=baseline is not None or options.accepts_findings,
        not_understood=deployment.not_understood,
        notes=tuple(notes) + (() if report is None or report.audit is None else report.audit.notes),
        report=report,
        incomplete=incomplete,
    )


def _analysed(
    deployment: Deployment,
    log_paths: Sequence[str],
    options: GateOptions,
    analysis: AnalysisOptions | None,
    progress: Progress | None,
) -> Report | None:
    if not log_paths:
        return None
    from prefixaudit.analysis import AnalysisOptions, analyse

    # A gate says whether, not why: where tokens go isn't looked for.
    analysis = replace(analysis or AnalysisOptions(), rule_folders=options.rule_folders, why=False)
    return analyse(log_paths, deployment, analysis, progress)


def _findings(
    deployment: Deployment, rules: Sequence[Rule], report: Report | None
) -> tuple[Finding, ...]:
    """Return a log's findings; without one, those of the rules that need none."""
    if report is not None and report.audit is not None:
        return report.audit.findings
    from prefixaudit.analysis.sizing import block_size_of

    size, _ = block_size_of(deployment)
    subject = AuditSubject(
        servers=servers_of(deployment),
        tiers=tiers_of(deployment, block_size=size, capacity_blocks=None),
        adapters=adapters_of(deployment),
        has_tenants=has_tenants(deployment),
    )
    return findings_of(rules, subject)


def _placed(findings: Sequence[Finding], deployment: Deployment) -> tuple[Finding, ...]:
    """Let findings about a server or tier point to where it is described, if they point nowhere."""
    places = {server.name: server.location for server in deployment.servers}
    places |= {tier.name: tier.location for tier in deployment.tiers}
    placed = []
    for finding in findings:
        observation = finding.observation
        place = places.get(observation.subject)
        if observation.location is None and place is not None:
            observation = replace(observation, location=place)
            finding = replace(finding, observation=observation)
        placed.append(finding)
    return tuple(placed)


def _policy(policy: AuditPolicy, options: GateOptions) -> AuditPolicy:
    if options.fail_on is not None:
        policy = replace(policy, fail_on=options.fail_on)
    if options.never_fails:
        policy = replace(policy, fail_on=None)
    if options.fail_on_inconclusive is not None:
        policy = replace(policy, fail_on_inconclusive=options.fail_on_inconclusive)
    return policy


def _judged(
    finding: Finding,
    policy: AuditPolicy,
    baseline: Baseline | None,
    today: date,
    *,
    accepts: bool,
) -> GateFinding:
    ignore = next(
        (ignore for ignore in policy.ignores if ignore.covers(finding) and today <= ignore.expires),
        None,
    )
    if ignore is not None:
        return GateFinding(
            finding=finding,
            status="ignored",
            fails=False,
            reason=ignore.reason,
            owner=ignore.owner,
            expires=ignore.expires,
        )
    if accepts or (baseline is not None and finding.fingerprint in baseline.fingerprints):
        return GateFinding(finding=finding, status="known", fails=False)
    severity = finding.severity
    if policy.fail_on_inconclusive and finding.observation.verdict == "inconclusive":
        severity = finding.severity_if_true
    fails = policy.fail_on is not None and severity >= policy.fail_on
    return GateFinding(finding=finding, status="new", fails=fails)


def _budgets(
    policy: AuditPolicy,
    figures: Mapping[str, float],
    baseline: Baseline | None,
    *,
    has_log: bool,
) -> tuple[list[BudgetResult], list[str]]:
    """Return the budgets that can be checked, and notes on those that can't."""
    given = list(policy.budgets.given())
    if not has_log:
        names = ", ".join(name for name, _ in given)
        return [], [f"without a log no budget was checked: {names}"] if given else []
    results: list[BudgetResult] = []
    notes: list[str] = []
    for name, limit in given:
        is_drop = name.endswith("_drop")
        bound, figure = ("max", name[4:-5]) if is_drop else (name[:3], name[4:])
        value = figures.get(figure)
        about = ABOUT[figure]
        if is_drop:
            before = None if baseline is None else baseline.figures.get(figure)
            if before is None:
                notes.append(f"{name} wasn't checked: no baseline has {figure}")
                continue
            about = f"{about}: {before:.4f} in the baseline"
            value = None if value is None else before - value
        verdict: BudgetVerdict = "not-known"
        if value is not None:
            excess = limit - value if bound == "min" else value - limit
            met = excess <= _ROUNDING
            verdict = "met" if met else "missed"
        results.append(
            BudgetResult(name=name, limit=limit, value=value, verdict=verdict, about=about)
        )
    return results, notes


def _notes_on_ignores(
    policy: AuditPolicy, findings: Sequence[Finding], rules: Sequence[Rule], today: date
) -> list[str]:
    """Say which ignores have run out, cover nothing, or name a rule that isn't there."""
    names = {rule.name for rule in rules}
    notes = []
    for ignore in policy.ignores:
        covered = any(ignore.covers(finding) for finding in findings)
        if ignore.rule not in names:
            notes.append(f"{_named(ignore)} names no rule that is known")
        elif covered and ignore.expires < today:
            notes.append(
                f"{_named(ignore)} ran out on {ignore.expires}; {ignore.owner} answers for it"
            )
        elif not covered:
            notes.append(f"{_named(ignore)} covers no finding; it can go")
    return notes


def _named(ignore: Ignore) -> str:
    subject = "" if ignore.subject == "*" else f" on '{ignore.subject}'"
    return f"the ignore of {ignore.rule}{subject}"
