r"""Reads [hardware]: the GPUs that one server runs on, for seconds, money and the pool's size.

    [hardware]
    gpu = "h100-sxm"               # `prefixaudit list gpus`
    tensor_parallel = 2            # GPUs that share the model
    gpu_memory_utilization = 0.9   # for SGLang mem_fraction_static; default: the engine's own
    usd_per_gpu_hour = 3.2
    measured = "9800@8192"         # prefill tokens/s measured at a prompt length, or
    efficiency = "0.4-0.6"         # a share of the dense peak, instead of one assumed by length
    engine_log = "vllm.log"        # the engine's start-up log: its pool and block size count

Options of a command win over the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixaudit.errors import ConfigurationError, UsageError

if TYPE_CHECKING:  # most logs come without a GPU
    from prefixaudit.cost.engine_log import EngineLog
    from prefixaudit.cost.hardware import Gpu
    from prefixaudit.cost.time import MeasuredPrefill
    from prefixaudit.tables import Table

NEEDS_GPU = ("usd_per_gpu_hour", "measured", "efficiency")


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFacts:
    """What one server runs on; None where nobody said it.

    memory_share  gpu_memory_utilization, for SGLang mem_fraction_static
    measured, efficiency  replace the efficiency that is assumed
    engine_log    what the engine itself said of its pool
    """

    gpu: Gpu | None = None
    tensor_parallel: int | None = None
    memory_share: float | None = None
    usd_per_gpu_hour: float | None = None
    measured: MeasuredPrefill | None = None
    efficiency: tuple[float, float] | None = None
    engine_log: EngineLog | None = None

    def overridden(self, **options: Any) -> HardwareFacts:
        """Return the facts with the options that were given (not None) in place of their own."""
        given = {name: value for name, value in options.items() if value is not None}
        # A measurement and an assumption replace each other.
        if "measured" in given:
            given.setdefault("efficiency", None)
        elif "efficiency" in given:
            given["measured"] = None
        return replace(self, **given)


def read_hardware(table: Table, folder: Path) -> HardwareFacts:
    """Read the table; problems are noted in its document."""
    from prefixaudit.cost.hardware import find_gpu

    gpu = None
    name = table.text("gpu", default=None)
    if name is not None:
        try:
            gpu = find_gpu(name)
        except UsageError as error:
            table.problem("gpu", str(error))
    facts = HardwareFacts(
        gpu=gpu,
        tensor_parallel=table.integer("tensor_parallel", default=None, minimum=1, maximum=1024),
        memory_share=table.number("gpu_memory_utilization", default=None, minimum=0.01, maximum=1),
        usd_per_gpu_hour=table.number("usd_per_gpu_hour", default=None, minimum=0),
        measured=_parsed(table, "measured", measured_prefill),
        efficiency=_parsed(table, "efficiency", efficiency_range),
        engine_log=_parsed(table, "engine_log", lambda text: engine_log_of(folder / text)),
    )
    for key in NEEDS_GPU:
        if key in table and name is None:
            table.problem(key, "is given without a gpu")
    if facts.measured is not None and facts.efficiency is not None:
        table.problem("efficiency", "is given beside measured; give one")
    return facts


def _parsed(table: Table, key: str, parse: Any) -> Any:
    text = table.text(key, default=None)
    if text is None:
        return None
    try:
        return parse(text)
    except (UsageError, ConfigurationError) as error:
        table.problem(key, str(error))
        return None


def measured_prefill(text: str) -> MeasuredPrefill:
    """Return a prefill throughput as TOKENS_PER_S@LENGTH. Raises UsageError for anything else."""
    from prefixaudit.cost.time import MeasuredPrefill

    match = re.fullmatch(r"\s*([0-9]{0,12}\.?[0-9]{1,12})\s*@\s*([0-9]{1,9})\s*", text)
    if match and float(match.group(1)) > 0 and int(match.group(2)) > 0:
        return MeasuredPrefill(tokens_per_s=float(match.group(1)), num_tokens=int(match.group(2)))
    raise UsageError("--measured is tokens a second at a prompt length; 9800@8192 is one")


def efficiency_range(text: str) -> tuple[float, float]:
    """Return shares of the peak as LOW-HIGH. Raises UsageError for anything else."""
    match = re.fullmatch(r"\s*([0-9]?\.?[0-9]{1,12})\s*-\s*([0-9]?\.?[0-9]{1,12})\s*", text)
    lo, hi = (float(match.group(1)), float(match.group(2))) if match else (0.0, 0.0)
    if not 0 < lo <= hi <= 1:
        raise UsageError("--efficiency is a range of shares of the peak; 0.4-0.6 is one")
    return lo, hi


def engine_log_of(path: Path) -> EngineLog:
    """Return what a start-up log says of the pool. Raises ConfigurationError if nothing."""
    from prefixaudit.cost.engine_log import read_engine_log

    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            log = read_engine_log(stream)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from None
    if log.is_empty:
        raise ConfigurationError(
            f"{path}: no line about the KV cache; the start-up log of vLLM or SGLang has one"
        )
    return log
