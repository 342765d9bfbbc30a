"""The report as JSON; `prefixaudit/schemas/report.schema.json` describes it.

Within a `schema_version` keys are added, not changed. What isn't known is null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prefixaudit.core.finding import Finding
from prefixaudit.core.report import AuditReport, Hits, Renderer, RenderOptions, Report
from prefixaudit.json_text import json_text
from prefixaudit.render._reported import reported_values
from prefixaudit.render._time import fork_values, time_values
from prefixaudit.render._why import why_values

if TYPE_CHECKING:
    from prefixaudit.core.gate import GateReport

SCHEMA_VERSION = 1


def as_values(report: Report) -> dict[str, Any]:
    """Return the report as plain values, ready for any serializer."""
    log, model, pool = report.log, report.model, report.pool
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": report.version},
        "deployment": report.deployment_path,
        "incomplete": report.incomplete,
        "log": {
            "files": [asdict(file) for file in log.files],
            "num_records": log.num_records,
            "num_requests": log.num_requests,
            "num_skipped": log.num_skipped,
            "num_skipped_by_kind": _by_kind(report),
            "skipped": [
                {"source": str(item.source), "kind": item.kind, "reason": item.reason}
                for item in log.skipped
            ],
            "num_tenants": log.num_tenants,
            "first_arrival_s": log.first_arrival_s,
            "last_arrival_s": log.last_arrival_s,
            "num_approximate": log.num_approximate,
            "facts": [asdict(fact) for fact in log.facts],
        },
        "model": {
            "name": model.name,
            "folder": model.folder,
            "kv_bytes_per_token": model.kv_bytes_per_token,
            "problem": model.problem,
        },
        "pool": {
            "engine": pool.engine,
            "engine_notes": pool.engine_notes,
            "block_size": pool.block_size,
            "block_size_origin": pool.block_size_origin,
            "min_recomputed_tokens": pool.min_recomputed_tokens,
            "key_fields": pool.key_fields,
            "capacity_blocks": pool.capacity_blocks,
            "capacity_bytes": pool.capacity_bytes,
            "capacity_origin": pool.capacity_origin,
            "capacity_range_blocks": pool.capacity_range_blocks,
            "num_distinct_blocks": pool.num_distinct_blocks,
            "simulation": pool.simulation,
            "warm_start": None if pool.warm_start is None else asdict(pool.warm_start),
        },
        "totals": {
            "num_requests": log.num_requests,
            "num_prompt_tokens": report.num_prompt_tokens,
            "prefill_flops": report.prefill_flops,
            "kv_bytes_per_token": model.kv_bytes_per_token,
            **_hits(report.this_pool),
        },
        "endless_pool": _hits(report.endless_pool),
        "trace_ids": None if report.trace_ids is None else asdict(report.trace_ids),
        "hit_length": None
        if report.hit_length is None
        else {
            "p50": report.hit_length.p50,
            "p90": report.hit_length.p90,
            "p99": report.hit_length.p99,
            "max": report.hit_length.max,
            "histogram": [
                {"from_tokens": first, "num_requests": count}
                for first, count in report.hit_length.histogram
            ],
        },
        "curve": [asdict(point) for point in report.curve],
        "reported": {
            "num_prompt_tokens": _or_none(report.prompt_agreement),
            "num_cached_tokens": _or_none(report.cached_agreement),
            **reported_values(report.reported),
        },
        "generated": asdict(report.generated),
        "unknown_fields": [asdict(field) for field in report.unknown_fields],
        "findings": [] if report.audit is None else [_finding(f) for f in report.audit.findings],
        "audit": None if report.audit is None else _audit(report.audit),
        "why": None if report.why is None else why_values(report.why),
        "time": time_values(report.time),
        "samples": fork_values(report.forks),
        "notes": [*report.notes, *report.replay_notes],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    observation = finding.observation
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": finding.severity.label,
        "severity_if_true": finding.severity_if_true.label,
        "confidence": finding.confidence.label,
        "verdict": observation.verdict,
        "subject": observation.subject,
        "message": observation.message,
        "fingerprint": finding.fingerprint,
        "location": None if observation.location is None else asdict(observation.location),
        "num_requests": len(observation.requests),
        "requests": list(observation.requests),
        "num_tokens": observation.num_tokens,
        "evidence": [asdict(pair) for pair in observation.evidence],
        "facts": dict(observation.facts),
        "remediation": finding.remediation,
    }


def _audit(audit: AuditReport) -> dict[str, Any]:
    return {
        "num_rules": audit.num_rules,
        "tiers": [asdict(tier) for tier in audit.tiers],
        "safe_this_pool_tokens": audit.safe_this_pool_tokens,
        "safe_endless_pool_tokens": audit.safe_endless_pool_tokens,
        "num_cross_tenant_private_tokens": audit.num_cross_tenant_private_tokens,
        "num_public_tokens": audit.num_public_tokens,
        "isolation": [asdict(row) for row in audit.isolation],
        "proposed_public_prefixes": [asdict(p) for p in audit.proposed_public_prefixes],
        "notes": list(audit.notes),
    }


def _hits(hits: Hits) -> dict[str, Any]:
    return asdict(hits)


def _or_none(value: Any) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _by_kind(report: Report) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in report.log.skipped:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    return dict(sorted(counts.items()))


def render(report: Report, options: RenderOptions) -> str:
    """Return the report as indented JSON."""
    return json_text(as_values(report))


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as indented JSON."""
    from prefixaudit.render import _gate_json

    return _gate_json.render_gate(gate, options)


RENDERER = Renderer(
    title="JSON with a schema_version, for programs", render=render, render_gate=render_gate
)
