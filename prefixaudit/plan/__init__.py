"""Capacity planning: what other sizes, settings and numbers of servers would do for a log.

planner    `plan`: from paths and a deployment to a PlanReport
options    what is asked; report: what is answered
basis      the log under the engine's key; serving: one timed run
sweeps     rows of options; hardware, isolation, policies, coarser, routing: what they vary
shape, contents, sampling, recommend  what is said of the log and its curve
timing     seconds of a step from the cost model or from measurements
formats    one file an output format
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefixaudit.plan.options import PlanOptions as PlanOptions
    from prefixaudit.plan.planner import plan as plan
    from prefixaudit.plan.report import PlanReport as PlanReport

_HOMES = {"PlanOptions": "options", "PlanReport": "report", "plan": "planner"}

__all__ = ["PlanOptions", "PlanReport", "plan"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: planning needs numba, `--help` does not."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
