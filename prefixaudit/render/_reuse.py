"""REUSE and HIT LENGTH: hit rates, each with its definition, and how long hits are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prefixaudit.core.report import Hits, Report
from prefixaudit.render._style import Style
from prefixaudit.render._units import bar, flop_unit
from prefixaudit.wording import percent, plural


def reuse_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section REUSE."""
    this, endless = report.this_pool, report.endless_pool
    has_pool = report.pool.capacity_blocks is not None
    heads = ("this pool", "endless pool") if has_pool else ("endless pool",)
    pools = (this, endless) if has_pool else (endless,)
    yield ""
    yield style.bold("REUSE".ljust(32)) + "".join(f"{head:>15}" for head in heads)

    def row(name: str, values: list[str], about: str) -> str:
        cells = "".join(f"{value:>15}" for value in values)
        return f"  {name:<30}{cells}    {about}".rstrip()

    def rates(pick: str) -> list[str]:
        return [percent(getattr(hits, pick)) for hits in pools]

    yield row("token hit rate", rates("token_hit_rate"), "cached / prompt tokens")
    yield row("  second half of the log", rates("second_half_token_hit_rate"), "pool filled before")
    yield from _safe_row(report, row, has_pool)
    unit = "block" if report.trace_ids is None else "id"
    yield row("request hit rate", rates("request_hit_rate"), f"one {unit} or more")
    yield row("mean over requests", rates("mean_request_hit_rate"), "of cached / prompt tokens")
    yield row("block hit rate", rates("block_hit_rate"), "cached / full blocks")
    ids = report.trace_ids
    if ids is not None:
        cells = ["", percent(ids.id_hit_rate)] if has_pool else [percent(ids.id_hit_rate)]
        yield row("id hit rate", cells, "matched / all hash ids")
        if ids.finer_block_size is not None:
            text = f"{percent(ids.min_token_hit_rate)[:-2]}-{percent(ids.max_token_hit_rate)}"
            cells = ["", text] if has_pool else [text]
            yield row(f"token rate, {ids.finer_block_size}-token blocks", cells, "range: see notes")
    yield row(
        "prefill FLOPs saved",
        rates("flops_saved_share"),
        _flops(report, this if has_pool else endless),
    )
    if report.log.num_requests:
        tokens = [f"{hits.num_cached_tokens:,}" for hits in pools]
        yield row("cached tokens", tokens, f"of {report.num_prompt_tokens:,}")
    reported = report.cached_agreement
    if reported is not None:
        yield from style.wrapped(
            f"  the server reported {reported.reported_tokens:,} cached tokens for "
            f"{plural(reported.num_compared, 'request')}; replayed for the same: "
            f"{reported.replayed_tokens:,} ({reported.num_equal:,} equal, "
            f"{reported.num_more:,} more, {reported.num_less:,} less)",
            indent=2,
        )


def _safe_row(
    report: Report, row: Callable[[str, list[str], str], str], has_pool: bool
) -> Iterator[str]:
    audit, total = report.audit, report.num_prompt_tokens
    if audit is None or audit.safe_endless_pool_tokens is None or not total:
        return
    tokens = [audit.safe_this_pool_tokens, audit.safe_endless_pool_tokens][not has_pool :]
    values = [percent(None if number is None else number / total) for number in tokens]
    yield row("  of it safe", values, "donor of the same identity")


def _flops(report: Report, hits: Hits) -> str:
    total = report.prefill_flops
    if total is None or hits.prefill_flops_saved is None:
        return "not known: see notes"
    scale, unit = flop_unit(total)
    saved = hits.prefill_flops_saved / scale
    return f"{saved:,.2f} of {total / scale:,.2f} {unit}, causal"


def hit_length_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section HIT LENGTH."""
    lengths = report.hit_length
    if lengths is None:
        return
    yield ""
    head = style.bold("HIT LENGTH".ljust(14))
    yield (
        f"{head}p50 {lengths.p50:,} · p90 {lengths.p90:,} · p99 {lengths.p99:,} · max "
        f"{lengths.max:,} cached tokens a request, zeros included"
    )
    total = report.log.num_requests
    starts = [first for first, _ in lengths.histogram]
    for place, (first, count) in enumerate(lengths.histogram):
        if place + 1 < len(starts):
            last = starts[place + 1] - 1
            label = "none" if first == 0 else f"{first:,} - {last:,}"
        else:
            label = f"{first:,} and more" if first else "none"
        length = bar(count / total, 40)
        yield f"  {label:>22}  {percent(count / total):>8}  {length} {count:,}".rstrip()
