"""The report for a terminal: 100 columns, readable without colour and piped into a file."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from prefixaudit.core.report import (
    CurveMark,
    CurvePoint,
    Hits,
    ReadFile,
    Renderer,
    RenderOptions,
    Report,
    UnknownField,
)
from prefixaudit.printable import printable
from prefixaudit.render._audit import (
    finding_lines,
    isolation_lines,
    key_lines,
    proposal_lines,
)
from prefixaudit.render._gate_text import render_gate
from prefixaudit.render._plot import Mark, plot_curve
from prefixaudit.render._reported import reported_lines
from prefixaudit.render._why import cause_lines, waterfall_lines

_GIB = 2**30
_BAR = "▏▎▍▌▋▊▉█"
_FIRST_SKIPPED = 3
_MARKS: tuple[CurveMark, ...] = ("this-pool", "knee", "endless")


def render(report: Report, options: RenderOptions) -> str:
    """Return the report as text of at most `options.width` columns (paths and ids are folded)."""
    return "\n".join(_Text(report, options).lines()) + "\n"


class _Text:
    def __init__(self, report: Report, options: RenderOptions) -> None:
        self.report = report
        self.width = max(60, options.width)
        self.colour = options.colour
        self.show_skipped = options.show_skipped
        self.show_inconclusive = options.show_inconclusive

    def lines(self) -> Iterator[str]:
        yield from self._header()
        if self.report.incomplete is not None:
            yield ""
            yield from self._wrapped(f"INCOMPLETE  {printable(self.report.incomplete)}", indent=12)
        reported = self.report.reported
        is_trusted = reported is None or reported.trust is None or reported.trust.is_trusted
        if not (is_trusted and self.report.log.num_requests):
            yield from self._reported()
        if self.report.log.num_requests:
            yield from self._reuse()
            if is_trusted:
                yield from self._reported()
            yield from self._hit_lengths()
            yield from self._why()
            yield from self._curve()
            yield from self._audit()
            yield from self._unknown()
        yield from self._skipped()
        yield from self._notes()
        yield ""
        yield (
            "exit 3: the audit is incomplete"
            if self.report.incomplete is not None
            else "exit 0: complete"
        )

    # What was read, and under what it was replayed.
    def _header(self) -> Iterator[str]:
        report, log = self.report, self.report.log
        names = _files_in_short(log.files)
        yield from self._wrapped(f"prefixaudit {report.version} · {names}")
        parts = [_plural(log.num_requests, "request")]
        if log.num_tenants is not None:
            parts[0] += f" from {_plural(log.num_tenants, 'tenant')}"
        if log.first_arrival_s is not None and log.last_arrival_s is not None:
            parts[0] += f" over {_duration(log.last_arrival_s - log.first_arrival_s)}"
        parts.append(self._skipped_in_short())
        yield from self._wrapped(" · ".join(parts))
        yield from self._wrapped(" · ".join(self._setting()))
        if report.deployment_path is not None:
            yield from self._wrapped(f"deployment {printable(report.deployment_path)}")

    def _skipped_in_short(self) -> str:
        log = self.report.log
        if not log.num_skipped:
            return "no record skipped"
        kinds = Counter(item.kind for item in log.skipped)
        named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
        more = "" if self.show_skipped or log.num_skipped <= _FIRST_SKIPPED else "; --show-skipped"
        return f"{_plural(log.num_skipped, 'record')} skipped ({named}{more})"

    def _setting(self) -> Iterator[str]:
        report, pool = self.report, self.report.pool
        model = report.model.name
        engine = pool.engine if pool.engine is not None else "no engine given"
        size = "no limit" if pool.capacity_blocks is None else _blocks(pool.capacity_blocks)
        room = f" ({_gib(pool.capacity_bytes)})" if pool.capacity_bytes is not None else ""
        origin = {
            "deployment": "",
            "engine": " (the engine's default)",
            "trace": " (the trace's)",
            "assumed": " (assumed; --block-size)",
        }[pool.block_size_origin]
        yield ", ".join(
            part
            for part in (
                engine,
                None if model is None else printable(model),
                f"{pool.block_size}-token blocks{origin}",
                f"pool: {size}{room}",
            )
            if part is not None
        )
        agreement = report.prompt_agreement
        if agreement is not None:
            yield (
                f"prompts replayed: {agreement.num_equal:,} of {agreement.num_compared:,} "
                "match the server's counts"
            )

    # Hit rates, each with its definition.
    def _reuse(self) -> Iterator[str]:
        report = self.report
        this, endless = report.this_pool, report.endless_pool
        has_pool = report.pool.capacity_blocks is not None
        heads = ("this pool", "endless pool") if has_pool else ("endless pool",)
        pools = (this, endless) if has_pool else (endless,)
        yield ""
        yield self._bold("REUSE".ljust(32)) + "".join(f"{head:>15}" for head in heads)

        def row(name: str, values: list[str], about: str) -> str:
            cells = "".join(f"{value:>15}" for value in values)
            return f"  {name:<30}{cells}    {about}".rstrip()

        def rates(pick: str) -> list[str]:
            return [_percent(getattr(hits, pick)) for hits in pools]

        yield row("token hit rate", rates("token_hit_rate"), "cached / prompt tokens")
        yield row(
            "  second half of the log", rates("second_half_token_hit_rate"), "pool filled before"
        )
        yield from self._safe_row(row, has_pool)
        unit = "block" if report.trace_ids is None else "id"
        yield row("request hit rate", rates("request_hit_rate"), f"one {unit} or more")
        yield row("mean over requests", rates("mean_request_hit_rate"), "of cached / prompt tokens")
        yield row("block hit rate", rates("block_hit_rate"), "cached / full blocks")
        ids = report.trace_ids
        if ids is not None:
            cells = ["", _percent(ids.id_hit_rate)] if has_pool else [_percent(ids.id_hit_rate)]
            yield row("id hit rate", cells, "matched / all hash ids")
            if ids.finer_block_size is not None:
                text = f"{_percent(ids.min_token_hit_rate)[:-2]}-{_percent(ids.max_token_hit_rate)}"
                cells = ["", text] if has_pool else [text]
                yield row(
                    f"token rate, {ids.finer_block_size}-token blocks", cells, "range: see notes"
                )
        yield row(
            "prefill FLOPs saved",
            rates("flops_saved_share"),
            self._flops(this if has_pool else endless),
        )
        if report.log.num_requests:
            tokens = [f"{hits.num_cached_tokens:,}" for hits in pools]
            yield row("cached tokens", tokens, f"of {report.num_prompt_tokens:,}")
        reported = report.cached_agreement
        if reported is not None:
            yield from self._wrapped(
                f"  the server reported {reported.reported_tokens:,} cached tokens for "
                f"{_plural(reported.num_compared, 'request')}; replayed for the same: "
                f"{reported.replayed_tokens:,} ({reported.num_equal:,} equal, "
                f"{reported.num_more:,} more, {reported.num_less:,} less)",
                indent=2,
            )

    def _reported(self) -> Iterator[str]:
        facts = self.report.reported
        if facts is None:
            return
        lines = reported_lines(facts)
        yield ""
        yield f"{self._bold('REPORTED')}  {next(lines)[1]}"
        for indent, line in lines:
            yield from self._wrapped(line, indent=indent)

    def _safe_row(self, row: Callable[[str, list[str], str], str], has_pool: bool) -> Iterator[str]:
        audit, total = self.report.audit, self.report.num_prompt_tokens
        if audit is None or audit.safe_endless_pool_tokens is None or not total:
            return
        tokens = [audit.safe_this_pool_tokens, audit.safe_endless_pool_tokens][not has_pool :]
        values = [_percent(None if number is None else number / total) for number in tokens]
        yield row("  of it safe", values, "donor of the same identity")

    # Where the tokens go that aren't reused, and what breaks prefixes.
    def _why(self) -> Iterator[str]:
        why = self.report.why
        if why is None:
            return
        for section in (
            waterfall_lines(why),
            cause_lines(why, num_requests=self.report.log.num_requests),
        ):
            for number, (indent, line) in enumerate(section):
                if not number:
                    yield ""
                    yield self._bold(line)
                else:
                    yield from self._wrapped(line, indent=indent)

    def _audit(self) -> Iterator[str]:
        audit = self.report.audit
        if audit is None:
            return
        lines = finding_lines(audit, show_inconclusive=self.show_inconclusive)
        yield ""
        yield f"{self._bold('FINDINGS')}  {next(lines)[1]}"
        for indent, line in lines:
            yield from self._wrapped(line, indent=indent)
        for table in (
            key_lines(audit),
            isolation_lines(
                audit.isolation,
                num_prompt_tokens=self.report.num_prompt_tokens,
                prefill_flops=self.report.prefill_flops,
            ),
        ):
            rows = list(table)
            if rows:
                yield ""
                yield self._bold(rows[0])
                for line in rows[1:]:
                    yield from self._wrapped(line, indent=62)
        proposals = list(proposal_lines(audit))
        if proposals:
            yield ""
            yield self._bold("SHARED BEGINNINGS")
            for indent, line in proposals:
                yield from self._wrapped(line, indent=indent)

    def _flops(self, hits: Hits) -> str:
        total = self.report.prefill_flops
        if total is None or hits.prefill_flops_saved is None:
            return "not known: see notes"
        scale, unit = _flop_unit(total)
        saved = hits.prefill_flops_saved / scale
        return f"{saved:,.2f} of {total / scale:,.2f} {unit}, causal"

    def _hit_lengths(self) -> Iterator[str]:
        lengths = self.report.hit_length
        if lengths is None:
            return
        yield ""
        head = self._bold("HIT LENGTH".ljust(14))
        yield (
            f"{head}p50 {lengths.p50:,} · p90 {lengths.p90:,} · p99 {lengths.p99:,} · max "
            f"{lengths.max:,} cached tokens a request, zeros included"
        )
        total = self.report.log.num_requests
        starts = [first for first, _ in lengths.histogram]
        for place, (first, count) in enumerate(lengths.histogram):
            if place + 1 < len(starts):
                last = starts[place + 1] - 1
                label = "none" if first == 0 else f"{first:,} - {last:,}"
            else:
                label = f"{first:,} and more" if first else "none"
            bar = _bar(count / total, 40)
            yield f"  {label:>22}  {_percent(count / total):>8}  {bar} {count:,}".rstrip()

    def _curve(self) -> Iterator[str]:
        points = [point for point in self.report.curve if point.capacity_blocks > 0]
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
            width=min(self.width, 100) - 2,
        )
        if not lines:
            return
        yield ""
        about = "   ◆ knee: a doubling beyond it pays less than the average one"
        yield self._bold("TOKEN HIT RATE BY POOL SIZE") + (about if "knee" in by_mark else "")
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
                room = (
                    f" ({_gib(point.capacity_bytes)})" if point.capacity_bytes is not None else ""
                )
                text = (
                    f"  {symbol} {title:<18}{_blocks(point.capacity_blocks):>17}{room}  "
                    f"{_percent(point.token_hit_rate)}"
                )
                yield self._mark(text) if name == "knee" else text
        yield from self._curve_in_words(by_mark)

    def _curve_in_words(self, by_mark: dict[CurveMark, CurvePoint]) -> Iterator[str]:
        """Say what the curve means for this pool."""
        this, knee, endless = (by_mark.get(mark) for mark in _MARKS)
        most = self.report.endless_pool.num_cached_tokens
        if this is None or not most:
            return
        share = this.num_cached_tokens / most
        text = f"this pool hits {_percent(share)} of what an endless pool hits"
        if endless is not None and this.capacity_blocks > endless.capacity_blocks:
            text += f"; {_blocks(endless.capacity_blocks)} would hit as much"
        elif knee is not None and knee.capacity_blocks > this.capacity_blocks:
            more = (knee.token_hit_rate or 0.0) - (this.token_hit_rate or 0.0)
            factor = knee.capacity_blocks / max(this.capacity_blocks, 1)
            text += f"; {factor:.1f} times as many blocks bring {100 * more:.1f} points more"
        yield from self._wrapped(f"  {text}", indent=4)

    def _unknown(self) -> Iterator[str]:
        fields = self.report.unknown_fields
        if not fields:
            return
        total = self.report.log.num_requests
        yield ""
        everywhere = [field for field in fields if field.num_requests == total]
        if everywhere:
            names = ", ".join(field.field for field in everywhere)
            lines = self._wrapped(
                f"UNKNOWN  for every request: {names}. This audit can't say whether requests that "
                "differ in them share blocks."
            )
            yield self._bold("UNKNOWN") + lines[0].removeprefix("UNKNOWN")
            yield from lines[1:]
        else:
            yield self._bold("UNKNOWN")
        for field in fields:
            if field.num_requests < total:
                yield from self._wrapped(f"  {_unknown_sentence(field, total)}", indent=4)

    def _skipped(self) -> Iterator[str]:
        log = self.report.log
        if not log.skipped:
            return
        yield ""
        yield self._bold("SKIPPED") + f"  {_plural(log.num_skipped, 'record')}"
        if self.show_skipped:
            for item in log.skipped:
                yield from self._wrapped(
                    f"  {printable(str(item.source))}: {item.kind}: {printable(item.reason)}",
                    indent=4,
                )
            return
        kinds = Counter(item.kind for item in log.skipped)
        for kind, count in kinds.most_common():
            yield f"  {count:,} {kind}"
            first = [item for item in log.skipped if item.kind == kind][:_FIRST_SKIPPED]
            for item in first:
                yield from self._wrapped(
                    f"    {printable(str(item.source))}: {printable(item.reason)}", indent=6
                )
            if count > len(first):
                yield f"    and {count - len(first):,} more (--show-skipped)"

    def _notes(self) -> Iterator[str]:
        audit = self.report.audit
        notes = [*self.report.notes, *self.report.replay_notes, *(audit.notes if audit else ())]
        if not notes:
            return
        yield ""
        yield self._bold("NOTES")
        for note in notes:
            yield from self._wrapped(f"  - {printable(note)}", indent=4)

    def _wrapped(self, text: str, *, indent: int = 2) -> list[str]:
        """Fold at words, and long words (paths, ids) anywhere: nothing is cut off."""
        return textwrap.wrap(
            text,
            self.width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            drop_whitespace=True,
        ) or [""]

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def _mark(self, text: str) -> str:
        return f"\x1b[36m{text}\x1b[0m" if self.colour else text


def _files_in_short(files: Sequence[ReadFile]) -> str:
    """Name one or two files, or count more of them by the folder that holds them all."""
    if len(files) <= 2:
        return (
            ", ".join(
                f"{printable(file.path)} ({file.format}{_size(file.num_bytes)})" for file in files
            )
            or "no files"
        )
    formats = ", ".join(sorted({file.format for file in files}))
    sizes = [file.num_bytes for file in files]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    folders = {str(PurePath(file.path).parent) for file in files}
    place = f"in {folders.pop()}" if len(folders) == 1 else f"in {len(folders):,} folders"
    return f"{len(files):,} files {printable(place)} ({formats}{_size(total)})"


def _unknown_sentence(field: UnknownField, total: int) -> str:
    effect = (
        "share blocks that differ in it" if field.kind == "content" else "see each other's reuse"
    )
    return (
        f"{field.field} ({field.about}) unknown for {field.num_requests:,} of {total:,} requests: "
        f"this audit can't say whether they {effect}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _blocks(count: int) -> str:
    return _plural(count, "block")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _gib(num_bytes: float | None) -> str:
    if num_bytes is None:
        return "-"
    gib = num_bytes / _GIB
    if gib >= 0.1:
        return f"{gib:,.1f} GiB"
    return f"{num_bytes / 2**20:,.1f} MiB"


def _size(num_bytes: int | None) -> str:
    if num_bytes is None:
        return ""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= limit:
            return f", {num_bytes / limit:.1f} {unit}"
    return f", {num_bytes} B"


def _flop_unit(flops: float) -> tuple[float, str]:
    for limit, unit in ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")):
        if flops >= limit:
            return limit, unit
    return 1e6, "MFLOP"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_BAR[rest - 1] if rest else "")


RENDERER = Renderer(title="text for a terminal", render=render, render_gate=render_gate)
