"""The plan as JSON; `prefixaudit/schemas/plan.schema.json` describes it.

Within a `schema_version` keys are added, not changed. What isn't known is null.
"""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any, Final

from prefixaudit.json_text import json_text
from prefixaudit.plan.formats import PlanFormat
from prefixaudit.plan.report import PlanReport

SCHEMA_VERSION: Final = 1


def as_values(report: PlanReport) -> dict[str, Any]:
    """Return the plan as plain values."""
    values = asdict(report)
    version = values.pop("version")
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": version},
        **_finite(values),
    }


def _finite(value: Any) -> Any:
    """Return values with NaN and infinity as None: JSON has neither."""
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float():
            return value if isfinite(value) else None
        case _:
            return value


def _render(report: PlanReport) -> str:
    return json_text(as_values(report))


FORMAT = PlanFormat(title="JSON, see plan.schema.json", render=_render)
