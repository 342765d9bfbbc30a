"""TOKEN HIT RATE BY POOL SIZE: the curve as a plot, its marks, and what it means."""

from __future__ import annotations

from collections.abc import Iterator

from prefixaudit.core.report import CurveMark, CurvePoint, Report
from prefixaudit.render._plot import Mark, plot_curve
from prefixaudit.render._style import Style
from prefixaudit.render._units import blocks, gib
from prefixaudit.wording import percent

_MARKS: tuple[CurveMark, ...] = ("this-pool", "knee", "endless")


def curve_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section of the curve; nothing where it has no shape."""
    points = [point for point in report.curve if point.capacity_blocks > 0]
    if len(points) < 2 or points[-1].token_hit_rate is None:
        return
    by_mark: dict[CurveMark, CurvePoint] = {}
    for point in points:
        for name in point.marks:
            by_mark[name] = point
    symbols: dict[CurveMark, str] = {"knee": "◆", "this-pool": "●"}
    marks = [
        Mark(capacity_blocks=by_mark[name].capacity_blocks, symbol=symbol)
        for name, symbol in symbols.items()
        if name in by_mark
    ]
    lines = plot_curve(
        [point.capacity_blocks for point in points],
        [point.token_hit_rate or 0.0 for point in points],
        marks,
        width=min(style.width, 100) - 2,
    )
    if not lines:
        return
    yield ""
    about = "   ◆ knee: a doubling beyond it pays less than the average one"
    yield style.bold("TOKEN HIT RATE BY POOL SIZE") + (about if "knee" in by_mark else "")
    yield from lines
    names: dict[CurveMark, str] = {
        "this-pool": "this pool",
        "knee": "knee",
        "endless": "all that can be hit",
    }
    for name, title in names.items():
        if name in by_mark:
            point = by_mark[name]
            symbol = symbols.get(name, " ")
            room = f" ({gib(point.capacity_bytes)})" if point.capacity_bytes is not None else ""
            text = (
                f"  {symbol} {title:<18}{blocks(point.capacity_blocks):>17}{room}  "
                f"{percent(point.token_hit_rate)}"
            )
            yield style.mark(text) if name == "knee" else text
    yield from _in_words(report, style, by_mark)


def _in_words(report: Report, style: Style, by_mark: dict[CurveMark, CurvePoint]) -> Iterator[str]:
    """Say what the curve means for this pool."""
    this, knee, endless = (by_mark.get(mark) for mark in _MARKS)
    most = report.endless_pool.num_cached_tokens
    if this is None or not most:
        return
    share = this.num_cached_tokens / most
    text = f"this pool hits {percent(share)} of what an endless pool hits"
    if endless is not None and this.capacity_blocks > endless.capacity_blocks:
        text += f"; {blocks(endless.capacity_blocks)} would hit as much"
    elif knee is not None and knee.capacity_blocks > this.capacity_blocks:
        more = (knee.token_hit_rate or 0.0) - (this.token_hit_rate or 0.0)
        factor = knee.capacity_blocks / max(this.capacity_blocks, 1)
        text += f"; {factor:.1f} times as many blocks bring {100 * more:.1f} points more"
    yield from style.wrapped(f"  {text}", indent=4)
