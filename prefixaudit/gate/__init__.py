"""The gate: may this be deployed? Rules and budgets, against a baseline and an old deployment.

evaluate   `run_gate`: from deployments and an optional log to a GateReport
figures    the figures of a log that budgets bound
baseline   the file that makes only new findings fail
changes    what a new deployment does to keys, hits and findings
"""

from prefixaudit.gate.baseline import Baseline, baseline_text, read_baseline
from prefixaudit.gate.evaluate import GateOptions, run_gate

__all__ = ["Baseline", "GateOptions", "baseline_text", "read_baseline", "run_gate"]
