"""Capacity planning: what other sizes, settings and numbers of servers would do for a log.

planner    `plan`: from paths and a deployment to a PlanReport
options    what is asked; report: what is answered
basis      the log under the engine's key; serving: one timed run
sweeps     rows of options; hardware, isolation, policies, coarser, routing, tiering: what they vary
mixing     spreads numbers evenly, for what is drawn or routed by a hash
shape, contents, sampling, recommend  what is said of the log and its curve
timing     seconds of a step from the cost model or from measurements
wording    findings, assumptions, and what wasn't compared
formats    one file an output format
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.lazy_names import lazy_names

if TYPE_CHECKING:
    from prefixaudit.plan.options import PlanOptions as PlanOptions
    from prefixaudit.plan.planner import plan as plan
    from prefixaudit.plan.report import PlanReport as PlanReport

__all__ = ["PlanOptions", "PlanReport", "plan"]

__getattr__ = lazy_names(
    __name__, {"PlanOptions": "options", "PlanReport": "report", "plan": "planner"}
)
