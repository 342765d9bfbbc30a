"""Options as cells, for every format that has a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prefixaudit.plan.report import Option, Range, TimedFigures

SWEEP_TITLES: Final = {
    "capacity": "POOL SIZE",
    "block-size": "BLOCK SIZE (pools of equal tokens)",
    "policy": "EVICTION",
    "hardware": "GPUS AND KV TYPES",
    "tiers": "TIERS",
    "replicas": "REPLICAS AND ROUTING",
    "isolation": "ISOLATION",
}
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A head and how an option's cell reads; a column that is empty for all rows is left out.

    `is_wide`: only where there is room for it.
    """

    head: str
    cell: Callable[[Option], str]
    is_number: bool = True
    is_wide: bool = False


def _timed(form: Callable[[TimedFigures], str]) -> Callable[[Option], str]:
    return lambda option: "" if option.timed is None else form(option.timed)


def percent(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}"


def percents(span: Range) -> str:
    lo, hi = f"{span[0]:.1%}", f"{span[1]:.1%}"
    return lo if lo == hi else f"{lo[:-1]}-{hi}"


def seconds(span: Range) -> str:
    """Return a range of seconds in the unit that its larger end asks for."""
    if any(number != number for number in span):
        return ""
    unit, scale = ("ms", 1e3) if span[1] < 1 else ("s", 1.0)
    lo, hi = (_short(number * scale) for number in span)
    return f"{lo} {unit}" if lo == hi else f"{lo}-{hi} {unit}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def counts(span: Range | tuple[int, int]) -> str:
    lo, hi = (f"{number:,.0f}" for number in span)
    return lo if lo == hi else f"{lo}-{hi}"


COLUMNS: Final = (
    Column(head="option", cell=lambda option: option.label, is_number=False),
    Column(
        head="GiB",
        cell=lambda option: (
            "" if option.capacity_bytes is None else f"{option.capacity_bytes / _GIB:,.1f}"
        ),
    ),
    Column(head="hit rate", cell=lambda option: percent(option.token_hit_rate)),
    Column(head="safe", cell=lambda option: percent(option.safe_token_hit_rate)),
    Column(head="in time", cell=_timed(lambda timed: percents(timed.token_hit_rate))),
    Column(
        head="fetched",
        cell=_timed(lambda timed: percents(timed.fetched_rate) if timed.fetched_rate[1] else ""),
    ),
    Column(head="FLOPs saved", cell=lambda option: percent(option.flops_saved_share)),
    Column(head="TTFT p50", cell=_timed(lambda timed: seconds(timed.ttft.p50_s)), is_wide=True),
    Column(head="TTFT p95", cell=_timed(lambda timed: seconds(timed.ttft.p95_s))),
    Column(
        head="ITL p95",
        cell=_timed(lambda timed: "" if timed.itl is None else seconds(timed.itl.p95_s)),
    ),
    Column(
        head="GPUs",
        cell=lambda option: "" if option.gpus_needed is None else counts(option.gpus_needed),
    ),
    Column(
        head="USD/day",
        cell=lambda option: "" if option.usd_per_day is None else counts(option.usd_per_day),
    ),
)


def table_of(
    options: tuple[Option, ...], *, is_wide: bool = True
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return heads, rows and which columns are numbers, without columns that say nothing."""
    used = [
        column
        for column in COLUMNS
        if (is_wide or not column.is_wide) and any(column.cell(option) for option in options)
    ]
    return (
        [column.head for column in used],
        [[column.cell(option) or "-" for column in used] for option in options],
        [column.is_number for column in used],
    )
