"""The baseline: findings that are known, and the figures that a change is measured against.

    {"schema_version": 1, "tool": {"name": "prefixaudit", "version": "…"},
     "findings": [{"fingerprint": "32 hex digits", "rule": "…", "subject": "…", "severity": "…"}],
     "figures": {"token_hit_rate": 0.71, …}}

Fingerprints stay equal while rule, subject and verdict do, so that the file can be kept in git.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prefixaudit.core.finding import Finding
from prefixaudit.errors import ConfigurationError
from prefixaudit.json_text import json_text

SCHEMA_VERSION: Final = 1
_MAX_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Fingerprints of known findings, and figures by name."""

    fingerprints: frozenset[str] = frozenset()
    figures: Mapping[str, float] = field(default_factory=dict)


def baseline_text(version: str, findings: Iterable[Finding], figures: Mapping[str, float]) -> str:
    """Return the text of a baseline file, findings in the order of their fingerprints."""
    rows = {
        finding.fingerprint: {
            "fingerprint": finding.fingerprint,
            "rule": finding.rule,
            "subject": finding.observation.subject,
            "severity": finding.severity.label,
        }
        for finding in findings
    }
    values = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": version},
        "findings": [rows[fingerprint] for fingerprint in sorted(rows)],
        "figures": dict(sorted(figures.items())),
    }
    return json_text(values) + "\n"


def read_baseline(path: Path) -> Baseline:
    """Return a baseline. Raises ConfigurationError where the file is none."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path}: larger than 64 MiB; expected a baseline")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"{path}: can't be read: {error.strerror or error}",
            hint="--write-baseline FILE writes one",
        ) from None
    except (ValueError, RecursionError):
        raise ConfigurationError(f"{path}: is no JSON; expected a baseline") from None
    if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path}: is no baseline; expected an object with schema_version {SCHEMA_VERSION}"
        )
    findings, figures = value.get("findings"), value.get("figures", {})
    if not isinstance(findings, list) or not isinstance(figures, dict):
        raise ConfigurationError(f"{path}: expected a list `findings` and an object `figures`")
    fingerprints = []
    for number, row in enumerate(findings):
        fingerprint = row.get("fingerprint") if isinstance(row, dict) else None
        if not isinstance(fingerprint, str):
            raise ConfigurationError(f"{path}: findings[{number}] has no fingerprint")
        fingerprints.append(fingerprint)
    for name, figure in figures.items():
        if isinstance(figure, bool) or not isinstance(figure, int | float):
            raise ConfigurationError(f"{path}: figures.{name} is no number")
    return Baseline(fingerprints=frozenset(fingerprints), figures=figures)
