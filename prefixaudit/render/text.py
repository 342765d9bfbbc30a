"""The report for a terminal: 100 columns, readable without colour and piped into a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prefixaudit.core.report import Renderer, RenderOptions, Report
from prefixaudit.printable import printable
from prefixaudit.render._audit import (
    finding_lines,
    isolation_lines,
    key_lines,
    proposal_lines,
)
from prefixaudit.render._coverage import skipped_lines, unknown_lines
from prefixaudit.render._curve import curve_lines
from prefixaudit.render._header import header_lines
from prefixaudit.render._reported import reported_lines
from prefixaudit.render._reuse import hit_length_lines, reuse_lines
from prefixaudit.render._style import Style
from prefixaudit.render._time import fork_lines, time_lines
from prefixaudit.render._why import cause_lines, waterfall_lines

if TYPE_CHECKING:
    from prefixaudit.core.gate import GateReport


def render(report: Report, options: RenderOptions) -> str:
    """Return the report as text of at most `options.width` columns (paths and ids are folded)."""
    return "\n".join(_Text(report, options).lines()) + "\n"


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as text of at most `options.width` columns."""
    from prefixaudit.render import _gate_text

    return _gate_text.render_gate(gate, options)


class _Text:
    def __init__(self, report: Report, options: RenderOptions) -> None:
        self.report = report
        self.style = Style(width=max(60, options.width), colour=options.colour)
        self.show_skipped = options.show_skipped
        self.show_inconclusive = options.show_inconclusive

    def lines(self) -> Iterator[str]:
        yield from header_lines(self.report, self.style, self.show_skipped)
        if self.report.incomplete is not None:
            yield ""
            yield from self.style.wrapped(
                f"INCOMPLETE  {printable(self.report.incomplete)}", indent=12
            )
        reported = self.report.reported
        is_trusted = reported is None or reported.trust is None or reported.trust.is_trusted
        if not (is_trusted and self.report.log.num_requests):
            yield from self._reported()
        if self.report.log.num_requests:
            yield from reuse_lines(self.report, self.style)
            if is_trusted:
                yield from self._reported()
            yield from time_lines(self.report, self.style)
            yield from hit_length_lines(self.report, self.style)
            yield from fork_lines(self.report, self.style)
            yield from self._why()
            yield from curve_lines(self.report, self.style)
            yield from self._audit()
            yield from unknown_lines(self.report, self.style)
        yield from skipped_lines(self.report, self.style, self.show_skipped)
        yield from self._notes()
        yield ""
        yield (
            "exit 3: the audit is incomplete"
            if self.report.incomplete is not None
            else "exit 0: complete"
        )

    def _reported(self) -> Iterator[str]:
        facts = self.report.reported
        if facts is None:
            return
        head, *lines = reported_lines(facts)
        if not lines:
            return
        yield ""
        yield f"{self.style.bold('REPORTED')}  {head[1]}"
        for indent, line in lines:
            yield from self.style.wrapped(line, indent=indent)

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
                    yield self.style.bold(line)
                else:
                    yield from self.style.wrapped(line, indent=indent)

    def _audit(self) -> Iterator[str]:
        audit = self.report.audit
        if audit is None:
            return
        lines = finding_lines(audit, show_inconclusive=self.show_inconclusive)
        yield ""
        yield f"{self.style.bold('FINDINGS')}  {next(lines)[1]}"
        for indent, line in lines:
            yield from self.style.wrapped(line, indent=indent)
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
                yield self.style.bold(rows[0])
                for line in rows[1:]:
                    yield from self.style.wrapped(line, indent=62)
        proposals = list(proposal_lines(audit))
        if proposals:
            yield ""
            yield self.style.bold("SHARED BEGINNINGS")
            for indent, line in proposals:
                yield from self.style.wrapped(line, indent=indent)

    def _notes(self) -> Iterator[str]:
        audit = self.report.audit
        notes = [*self.report.notes, *self.report.replay_notes, *(audit.notes if audit else ())]
        if not notes:
            return
        yield ""
        yield self.style.bold("NOTES")
        for note in notes:
            yield from self.style.wrapped(f"  - {printable(note)}", indent=4)


RENDERER = Renderer(title="text for a terminal", render=render, render_gate=render_gate)
