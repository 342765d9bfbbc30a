"""The options as comma-separated values, a line each; a range takes two columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from prefixaudit.plan.formats import PlanFormat
from prefixaudit.plan.report import Option, Percentiles, PlanReport, Range, TimedFigures

_PLAIN = (
    "sweep",
    "label",
    "block_size",
    "capacity_blocks",
    "capacity_bytes",
    "num_replicas",
    "token_hit_rate",
    "safe_token_hit_rate",
    "flops_saved_share",
)
_SPANS = ("replicas_needed", "gpus_needed", "usd_per_day")
_TIMES = ("ttft", "queue", "lookup", "fetch", "prefill", "itl")
_TIMED_SPANS = (
    "token_hit_rate",
    "fetched_rate",
    "num_preemptions",
    "num_recomputed_tokens",
    "peak_running",
    "mean_running",
)


def _render(report: PlanReport) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_heads())
    for option in report.options:
        writer.writerow(list(_cells(option)))
    return stream.getvalue()


def _heads() -> list[str]:
    heads = list(_PLAIN)
    heads += [f"{name}_{end}" for name in _SPANS for end in ("low", "high")]
    heads += [f"timed_{name}_{end}" for name in _TIMED_SPANS for end in ("low", "high")]
    heads += [
        f"{name}_{share}_s_{end}"
        for name in _TIMES
        for share in ("p50", "p95", "p99")
        for end in ("low", "high")
    ]
    return [*heads, "num_refused", "is_overloaded", "basis", "note"]


def _cells(option: Option) -> Iterator[Any]:
    for name in _PLAIN:
        value = getattr(option, name)
        yield _text(value) if isinstance(value, str) else value
    for name in _SPANS:
        yield from _ends(getattr(option, name))
    timed: TimedFigures | None = option.timed
    for name in _TIMED_SPANS:
        yield from _ends(None if timed is None else getattr(timed, name))
    for name in _TIMES:
        found: Percentiles | None = None if timed is None else getattr(timed, name)
        for share in ("p50_s", "p95_s", "p99_s"):
            yield from _ends(None if found is None else getattr(found, share))
    yield None if timed is None else timed.num_refused
    yield None if timed is None else timed.is_overloaded
    yield _text(option.basis)
    yield _text(option.note)


def _ends(span: Range | tuple[int, int] | None) -> tuple[float | None, float | None]:
    return (None, None) if span is None else span


def _text(value: str) -> str:
    """Keep a spreadsheet from taking text for a formula."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


FORMAT = PlanFormat(title="comma-separated values, a line an option", render=_render)
