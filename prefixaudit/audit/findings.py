"""Runs rules over a subject: observations become findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from prefixaudit.audit.predicates import PREDICATES
from prefixaudit.core.audit import AuditFigures, AuditSubject, TierReplay
from prefixaudit.core.finding import Finding, Observation, Severity
from prefixaudit.core.rule import Rule
from prefixaudit.errors import IncompleteError, PrefixAuditError
from prefixaudit.pool.curves import capacity_for_share


def findings_of(rules: Iterable[Rule], subject: AuditSubject) -> tuple[Finding, ...]:
    """Return what the rules find, the most severe first.

    Rules that need a log say nothing without one. Raises IncompleteError with the rule's name where
    a predicate fails: no rule fails silently.
    """
    findings: list[Finding] = []
    for rule in rules:
        if rule.scope == "lookup" and not subject.replays:
            continue
        if rule.scope == "report" and subject.figures is None:
            continue
        try:
            observed = tuple(PREDICATES[rule.predicate].observe(subject, rule.params))
        except PrefixAuditError:
            raise
        except Exception as error:
            name = type(error).__name__
            raise IncompleteError(f"the rule '{rule.name}' ({rule.path}) failed: {name}") from error
        findings += [finding_of(rule, observation) for observation in observed]
    return tuple(sorted(findings, key=_weight))


def finding_of(rule: Rule, observation: Observation) -> Finding:
    """Return the finding; what is inconclusive is informational, whatever it would be if true."""
    is_found = observation.verdict == "found"
    return Finding(
        rule=rule.name,
        title=rule.title,
        severity=rule.severity if is_found else Severity.INFORMATIONAL,
        severity_if_true=rule.severity,
        confidence=rule.confidence,
        observation=observation,
        remediation=rule.remediation,
    )


def _weight(finding: Finding) -> tuple[int, int, int, int, str, str]:
    observation = finding.observation
    return (
        -finding.severity,
        -finding.severity_if_true,
        -observation.num_tokens,
        -len(observation.requests),
        finding.rule,
        observation.subject,
    )


def figures_of(replays: Sequence[TierReplay]) -> AuditFigures | None:
    """Return the figures of the log's own pool, the first local one; None without a replay."""
    local = [replay for replay in replays if replay.tier.tier.kind == "local-pool"]
    if not local:
        return None
    replay = local[0]
    trace, curve = replay.trace, replay.curve
    tokens = trace.num_prompt_tokens
    endless = int(curve.num_cached_blocks[-1]) if len(curve.num_cached_blocks) else 0
    return AuditFigures(
        num_requests=trace.num_requests,
        num_prompt_tokens=int(tokens.sum()),
        block_size=trace.block_size,
        num_short_prompts=int(np.count_nonzero(tokens < trace.block_size)),
        num_bypassing=int(np.count_nonzero(~trace.reads_cache)),
        capacity_blocks=replay.tier.capacity_blocks,
        working_set_blocks=capacity_for_share(curve, 1.0),
        num_cached_tokens=int(replay.lookups.num_cached_tokens.sum()),
        num_endless_cached_tokens=endless * trace.block_size,
        num_safe_cached_tokens=int(replay.safe_lookups.num_cached_tokens.sum()),
        longest_prompt_tokens=int(tokens.max(initial=0)),
    )
