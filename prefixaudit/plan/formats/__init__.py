"""Output formats of a plan, one file each: a PlanReport in, text out.

A member ends in `FORMAT = PlanFormat(...)`; its name is what `--format` takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prefixaudit.plan.report import PlanReport
from prefixaudit.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFormat:
    """A title for people, and the report as text."""

    title: str
    render: Callable[[PlanReport], str]


FORMATS: Final[Registry[PlanFormat]] = Registry(
    kind="plan format", package="prefixaudit.plan.formats", attribute="FORMAT"
)
