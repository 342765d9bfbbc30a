"""A small curve in box characters: hit rate over pool size, on a logarithmic axis.

Eleven rows with the knee and this pool marked; drawn here because a plotting library would bring
more code than this needs and colours its own output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10

import numpy as np

_STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A capacity to mark with one character."""

    capacity_blocks: int
    symbol: str


def short_count(value: float) -> str:
    """Return a count in three digits: 950, 1.2k, 21k, 3.4M."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled = value / limit
            return (
                f"{scaled:.1f}".removesuffix(".0") + unit if scaled < 10 else f"{scaled:.0f}{unit}"
            )
    return f"{value:.0f}"


def plot_curve(
    capacities: Sequence[int], rates: Sequence[float], marks: Sequence[Mark], *, width: int
) -> list[str]:
    """Return lines of at most `width` columns; capacities are 1 or more and rise.

    Between two known points the line is drawn straight in the logarithm of the capacity.
    """
    left = 8
    columns = width - left - 1
    if len(capacities) < 2 or columns < 10:
        return []
    logs = np.log(np.asarray(capacities, dtype=np.float64))
    at = np.linspace(logs[0], logs[-1], columns)
    values = np.interp(at, logs, np.asarray(rates, dtype=np.float64))
    top, step = _scale(float(values.max()))
    num_rows = 10
    rows = np.rint(values / top * num_rows).astype(int)
    grid = [[" "] * columns for _ in range(num_rows + 1)]
    _draw_line(grid, rows)
    for mark in marks:
        place = float(np.log(max(mark.capacity_blocks, 1)))
        if logs[0] <= place <= logs[-1] + 1e-9:
            column = round((place - logs[0]) / (logs[-1] - logs[0]) * (columns - 1))
            grid[rows[column]][column] = mark.symbol
    lines = []
    for row in range(num_rows, -1, -1):
        value = top * row / num_rows
        is_labelled = abs(value / step - round(value / step)) < 1e-6
        label = f"{value:>5.0%} ┤" if is_labelled else "      │"
        lines.append(f"{label}{''.join(grid[row])}".rstrip())
    lines.extend(_axis(capacities, columns))
    return lines


def _scale(highest: float) -> tuple[float, float]:
    """Return the top of the axis and the distance of its labels."""
    for step in _STEPS:
        top = ceil(max(highest, 1e-9) / step - 1e-9) * step
        if top / step <= 5:
            # Ten rows: a label has to fall on one of them.
            return (top, step) if (10 * step / top) % 1 == 0 else (top, top / 2)
    return 1.0, 0.5


def _draw_line(grid: list[list[str]], rows: np.ndarray) -> None:
    previous = int(rows[0])
    for column, row_value in enumerate(rows):
        row = int(row_value)
        if row == previous:
            grid[row][column] = "─"
        else:
            low, high = min(row, previous), max(row, previous)
            rises = row > previous
            grid[high][column] = "╭" if rises else "╮"
            grid[low][column] = "╯" if rises else "╰"
            for between in range(low + 1, high):
                grid[between][column] = "│"
        previous = row


def _axis(capacities: Sequence[int], columns: int) -> list[str]:
    """Return the axis and its labels: powers of ten, and the last capacity at the right."""
    first, last = log10(capacities[0]), log10(capacities[-1])
    axis, labels = ["─"] * columns, [" "] * columns
    axis[-1] = "┬"
    end = f"{short_count(capacities[-1])} blocks"
    labels[columns - len(end) :] = end
    ticks = list(range(ceil(first - 1e-9), int(last + 1e-9) + 1))
    for power in ticks[:: max(1, ceil(len(ticks) / 6))]:
        column = round((power - first) / (last - first) * (columns - 1))
        text = short_count(10**power)
        start = max(0, column - len(text) // 2)
        if start + len(text) < columns - len(end) - 1:
            labels[start : start + len(text)] = text
            axis[column] = "┬"
    return ["      └" + "".join(axis), "       " + "".join(labels)]
