"""Reads the options of `prefixaudit plan` that are lists or have parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from prefixaudit.errors import UsageError
from prefixaudit.plan.options import GpuChoice, TierChoice
from prefixaudit.plan.timing import MeasuredEngine

Value = TypeVar("Value")


def listed(text: str | None, option: str, read: Callable[[str], Value]) -> tuple[Value, ...]:
    """Return the values of a list separated by commas; empty where the option wasn't given."""
    if text is None:
        return ()
    values = []
    for part in text.split(","):
        try:
            values.append(read(part.strip()))
        except ValueError:
            raise UsageError(f"{option}: '{part.strip()}' can't be read") from None
    return tuple(values)


def positive(text: str) -> int:
    """Return a whole number of 1 or more; ValueError for anything else."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise ValueError(text)
    return number


def name(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def gpu(text: str) -> GpuChoice:
    """Return a GPU as `NAME` or `NAME:GPUS`."""
    title, _, count = text.partition(":")
    return GpuChoice(name=name(title), tensor_parallel=positive(count) if count else 1)


def tier(text: str) -> TierChoice:
    """Return a tier as `NAME:GIB` or `NAME:BLOCKSblocks`."""
    title, _, size = text.partition(":")
    if size.endswith("blocks"):
        return TierChoice(name=name(title), num_blocks=positive(size.removesuffix("blocks")))
    gib = float(size)
    if not 0 < gib < float("inf"):
        raise ValueError(text)
    return TierChoice(name=name(title), gib=gib)


def throughput(text: str | None) -> MeasuredEngine | None:
    """Return what was measured, as PREFILL_TOKENS_PER_S,STEP_MS."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9.]+)\s*,\s*([0-9.]+)\s*", text)
    try:
        if match and float(match.group(1)) > 0:
            return MeasuredEngine(
                prefill_tokens_per_s=float(match.group(1)), step_s=float(match.group(2)) / 1e3
            )
    except ValueError:
        pass
    raise UsageError(
        "--throughput is prefill tokens a second and the milliseconds of a decode step; 9800,12 "
        "is one"
    )
