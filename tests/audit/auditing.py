"""Runs whole audits in tests: a deployment as text, a log from a case or written here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.finding import Finding
from prefixaudit.core.report import AuditReport, Report, TierRows
from prefixaudit.deployment import load_deployment

CASES = Path(__file__).parents[1] / "data" / "cases"


def case_folder(name: str) -> Path:
    (folder,) = CASES.glob(f"{name}-*")
    return folder


def expected_of(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((case_folder(name) / "expected.json").read_text())
    return answer


def run_case(name: str, deployment: str, folder: Path) -> Report:
    """Return the report of a case's log under a deployment, which is written beside it."""
    shutil.copytree(case_folder(name), folder, dirs_exist_ok=True)
    return run_log(folder / "requests.jsonl", deployment)


def run_log(log: Path, deployment: str, options: AnalysisOptions | None = None) -> Report:
    file = log.parent / "prefixaudit.toml"
    file.write_text(deployment)
    return analyse([str(log)], load_deployment(file), options)


def write_log(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def audit_of(report: Report) -> AuditReport:
    assert report.audit is not None
    return report.audit


def found(report: Report) -> dict[str, tuple[int, ...]]:
    """Return the requests (places in the log) of each rule that found something in them."""
    by_rule: dict[str, tuple[int, ...]] = {}
    for finding in found_in_log(report):
        requests = by_rule.get(finding.rule, ())
        by_rule[finding.rule] = tuple(sorted({*requests, *finding.observation.requests}))
    return by_rule


def found_in_log(report: Report) -> list[Finding]:
    return [
        finding
        for finding in audit_of(report).findings
        if finding.observation.verdict == "found" and finding.observation.requests
    ]


def rows_of(report: Report, tier: str) -> TierRows:
    (rows,) = (rows for rows in audit_of(report).rows if rows.name == tier)
    return rows
