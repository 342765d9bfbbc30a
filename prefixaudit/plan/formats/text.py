"""The plan for a terminal: 100 columns, the recommendation first, what it rests on last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from prefixaudit.plan.formats import PlanFormat
from prefixaudit.plan.formats._rows import SWEEP_TITLES, counts, percent, seconds, table_of
from prefixaudit.plan.report import Option, PlanReport, TimedFigures
from prefixaudit.printable import printable

WIDTH = 100
_GIB = 2**30
_BARS = " ▁▂▃▄▅▆▇█"


def _render(report: PlanReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: PlanReport) -> Iterator[str]:
    yield from _header(report)
    if report.incomplete is not None:
        yield ""
        yield from _wrapped(f"INCOMPLETE  {report.incomplete}", 12)
    if report.num_requests:
        yield from _recommendation(report)
        yield from _findings(report)
        for sweep in SWEEP_TITLES:
            yield from _sweep(report, sweep)
        yield from _this_pool_in_time(report)
        yield from _sampled(report)
        yield from _working_sets(report)
        yield from _prefixes(report)
        yield from _losers(report)
        yield from _break_even(report)
    if report.assumptions:
        yield ""
        yield "RESTS ON"
        for line in report.assumptions:
            yield from _wrapped(f"  {line}", 4)
    if report.notes:
        yield ""
        yield "NOTES"
        for line in report.notes:
            yield from _wrapped(f"  {line}", 4)
    yield ""
    yield "exit 3: the plan is incomplete" if report.incomplete is not None else "exit 0: complete"


def _header(report: PlanReport) -> Iterator[str]:
    names = ", ".join(PurePath(path).name for path in report.files[:3])
    more = f" and {len(report.files) - 3:,} more" if len(report.files) > 3 else ""
    yield from _wrapped(f"prefixaudit {report.version} plan · {names}{more}")
    parts = [f"{report.num_requests:,} requests"]
    if report.span_s is not None:
        parts[0] += f" over {_duration(report.span_s)}"
    if report.load != 1:
        parts.append(f"served {report.load:g} times as fast")
    parts.append(
        f"{report.num_skipped:,} records skipped" if report.num_skipped else "no record skipped"
    )
    parts.append(f"{report.num_prompt_tokens:,} prompt tokens, {report.num_answer_tokens:,} answer")
    yield from _wrapped(" · ".join(parts))
    size = "no pool" if report.capacity_blocks is None else f"{report.capacity_blocks:,} blocks"
    room = "" if report.capacity_bytes is None else f", {report.capacity_bytes / _GIB:,.1f} GiB"
    setting = [
        report.engine or "no engine given",
        *(part for part in (report.model, report.hardware) if part),
        f"{report.block_size:,}-token blocks",
        f"this pool: {size}{room} ({report.capacity_origin})",
    ]
    yield from _wrapped(" · ".join(setting))


def _recommendation(report: PlanReport) -> Iterator[str]:
    found = report.recommendation
    yield ""
    if found is None:
        yield "RECOMMENDED  nothing: no prompt token of this log is ever hit, in any pool"
        return
    yield from _wrapped(f"RECOMMENDED  {found.action}", 13)
    for reason in found.reasons:
        yield from _wrapped(f"  because {reason}", 10)


def _findings(report: PlanReport) -> Iterator[str]:
    for finding in report.findings:
        yield from _wrapped(f"  note    {finding}", 10)
    if report.knee_blocks is not None:
        rate = _rate_at(report, report.knee_blocks)
        yield from _wrapped(
            f"  curve   knee at {report.knee_blocks:,} blocks ({percent(rate)}); all that can be "
            f"hit ({percent(report.endless_hit_rate)}) from {report.enough_blocks:,} on",
            10,
        )


def _rate_at(report: PlanReport, capacity: int) -> float | None:
    reached = [p.token_hit_rate for p in report.curve if p.capacity_blocks <= capacity]
    return max(reached, default=None)


def _sweep(report: PlanReport, sweep: str) -> Iterator[str]:
    options = tuple(option for option in report.options if option.sweep == sweep)
    if not options:
        return
    yield ""
    yield SWEEP_TITLES[sweep]
    yield from _table(*table_of(options, is_wide=False))
    for note, labels in _notes_of(options).items():
        where = f"{labels[0]}: " if len(labels) < len(options) or len(options) == 1 else ""
        yield from _wrapped(f"  {where}{note}", 4)


def _notes_of(options: Sequence[Option]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in options:
        if option.note:
            found.setdefault(option.note, []).append(option.label)
    return found


def _this_pool_in_time(report: PlanReport) -> Iterator[str]:
    timed = next(
        (
            option.timed
            for option in report.options
            if option.sweep == "capacity" and option.capacity_blocks == report.capacity_blocks
        ),
        None,
    )
    if timed is None:
        return
    yield ""
    yield "THIS POOL, IN TIME (one replica)"
    rows = [
        [name, *(seconds(span) or "-" for span in (part.p50_s, part.p95_s, part.p99_s))]
        for name, part in (
            ("time to first token", timed.ttft),
            ("  waiting", timed.queue),
            ("  lookup", timed.lookup),
            ("  fetch", timed.fetch),
            ("  prefill", timed.prefill),
            ("between tokens", timed.itl),
        )
        if part is not None
    ]
    yield from _table(["", "p50", "p95", "p99"], rows, [False, True, True, True])
    yield from _wrapped(
        f"  {counts(timed.mean_running)} requests run at a time, {counts(timed.peak_running)} at "
        f"most; {counts(timed.num_preemptions)} preemptions, {counts(timed.num_recomputed_tokens)} "
        f"tokens computed again; {timed.num_refused:,} requests can't ever be served",
        2,
    )
    yield from _occupancy(timed, report.capacity_blocks or 1)


def _occupancy(timed: TimedFigures, capacity: int) -> Iterator[str]:
    if not timed.occupancy:
        return
    for name, values in (
        ("shared by running", [moment.num_shared_blocks for moment in timed.occupancy]),
        ("of one running", [moment.num_private_blocks for moment in timed.occupancy]),
        ("cached and idle", [moment.num_idle_cached_blocks for moment in timed.occupancy]),
    ):
        bars = "".join(_BARS[min(8, -(-8 * value // max(capacity, 1)))] for value in values)
        mean = sum(values) / len(values) / max(capacity, 1)
        yield f"  {name:<18} {bars}  {mean:.0%} of the pool on average"
    most = max(timed.occupancy, key=lambda moment: moment.num_shared_blocks)
    if most.num_shared_blocks:
        yield (
            f"  most at once: {most.num_shared_blocks:,} blocks shared by two or more of "
            f"{most.num_running:,} running requests, {most.num_private_blocks:,} of one alone"
        )


def _sampled(report: PlanReport) -> Iterator[str]:
    if not report.sampled:
        return
    yield ""
    yield f"FROM A SAMPLE OF {report.sample_share:.0%} OF THE CONVERSATIONS (plain LRU)"
    for rate in report.sampled:
        bound = "too few to say how far off" if rate.bound is None else f"± {rate.bound:.1%}"
        yield f"  {rate.capacity_blocks:>12,} blocks  {rate.hit_rate:6.1%}  {bound}"


def _working_sets(report: PlanReport) -> Iterator[str]:
    if not report.working_sets:
        return
    yield ""
    yield "WORKING SET (distinct blocks touched)"
    for found in report.working_sets:
        peak = max(found.peak_blocks, 1)
        most = 48
        step = -(-len(found.num_blocks) // most)
        values = [
            max(found.num_blocks[i : i + step]) for i in range(0, len(found.num_blocks), step)
        ]
        bars = "".join(_BARS[-(-8 * value // peak)] for value in values)
        yield (
            f"  per {_duration(found.window_s):<7} {bars}  peak {found.peak_blocks:,}, "
            f"mean {found.mean_blocks:,.0f}"
        )


def _prefixes(report: PlanReport) -> Iterator[str]:
    if not report.prefixes:
        return
    yield ""
    yield "LARGEST PREFIXES (by tokens that keeping them saves)"
    rows = [
        [
            prefix.hash[:16],
            f"{prefix.num_tokens:,}",
            f"{prefix.num_requests:,}",
            f"{prefix.num_own_blocks:,}",
            f"{prefix.num_below_blocks:,}",
            f"{prefix.num_saved_tokens:,}",
        ]
        for prefix in report.prefixes[:5]
    ]
    heads = ["hash", "ends at token", "requests", "own blocks", "blocks below", "tokens saved"]
    yield from _table(heads, rows, [False, True, True, True, True, True])


def _losers(report: PlanReport) -> Iterator[str]:
    losers = [loser for loser in report.losers if loser.loss > 0]
    if not losers:
        return
    yield ""
    yield "HURT BY HALF THE POOL"
    rows = [
        [
            loser.group,
            f"{loser.num_requests:,}",
            percent(loser.hit_rate),
            percent(loser.hit_rate_in_half),
        ]
        for loser in losers
    ]
    yield from _table(["group", "requests", "hit rate", "in half"], rows, [False, True, True, True])


def _break_even(report: PlanReport) -> Iterator[str]:
    if not report.break_even:
        return
    yield ""
    yield "FETCH OR RECOMPUTE (shortest cached prefix that is worth a fetch, at best to at worst)"
    for found in report.break_even:
        best, worst = found.num_tokens
        low = "no length" if best is None else f"{best:,} tokens"
        high = "no length" if worst is None else f"{worst:,} tokens"
        yield f"  {found.tier:<14} {low} to {high}"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> Iterator[str]:
    cells = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    # The first column gives way where a row would be too long.
    room = max(WIDTH - 2 - sum(widths[1:]) - 2 * (len(widths) - 1), 16)
    widths[0] = min(widths[0], room)
    for row in cells:
        first = textwrap.wrap(row[0], widths[0], break_on_hyphens=False) or [""]
        for extra in first[:-1]:
            yield f"  {extra}"
        parts = [first[-1].ljust(widths[0])]
        parts += [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row[1:], widths[1:], numbers[1:], strict=True)
        ]
        yield ("  " + "  ".join(parts)).rstrip()


def _wrapped(text: str, indent: int = 0) -> Iterator[str]:
    lead = len(text) - len(text.lstrip())
    yield from textwrap.wrap(
        printable(text.strip()),
        WIDTH,
        initial_indent=" " * lead,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def _duration(seconds_: float) -> str:
    if seconds_ < 60:
        return f"{seconds_:.3g} s"
    minutes = round(seconds_ / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


FORMAT = PlanFormat(title="text for a terminal", render=_render)
