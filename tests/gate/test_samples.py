"""The deployments in samples/ are told apart: none, the right ones, the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.deployment.reading import read_deployments
from prefixaudit.gate import run_gate

SAMPLES = Path(__file__).parents[2] / "samples" / "deployments"


def found(sample: str, severity: str) -> set[tuple[str, str]]:
    """Rules found at a severity, with the name of the file that they point to."""
    paths = sorted(path for path in (SAMPLES / sample).iterdir() if path.suffix != ".jsonl")
    report = run_gate(read_deployments(paths), deployment_paths=[str(path) for path in paths])
    return {
        (item.finding.rule, Path(item.finding.observation.location.path).name)
        for item in report.findings
        if item.finding.observation.verdict == "found"
        and item.finding.severity.label == severity
        and item.finding.observation.location is not None
    }


def test_safe_server_of_one_tenant_has_no_finding() -> None:
    for severity in ("high", "medium", "low"):
        assert found("single-tenant", severity) == set()


@pytest.mark.parametrize("rule", ["store-key-without-adapter", "store-key-without-salt"])
def test_store_of_several_tenants_with_adapters(rule: str) -> None:
    """LMCache 0.3.15 in-process: neither salt nor adapter is in the key."""
    assert (rule, "deployment.yaml") in found("multi-tenant", "high")


def test_store_of_several_tenants_has_no_other_high_finding() -> None:
    assert {rule for rule, _ in found("multi-tenant", "high")} == {
        "store-key-without-adapter",
        "store-key-without-salt",
    }


def test_two_servers_of_other_rope_scaling_share_a_store() -> None:
    """Only that: both have one model, data type, page size and release."""
    assert {rule for rule, _ in found("shared-store", "high")} == {
        "store-shared-across-position-encodings"
    }
