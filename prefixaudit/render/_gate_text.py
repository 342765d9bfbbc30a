"""A gate for a terminal: 100 columns, what fails first, the exit code last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from prefixaudit.core.gate import Change, GateFinding, GateReport
from prefixaudit.core.report import RenderOptions
from prefixaudit.render._gate import (
    budget_text,
    by_rule,
    evidence_of,
    ignored_text,
    message_of,
    place_of,
    plain,
    sorted_out,
)

_EFFECTS = {"better": "+", "worse": "-", "neutral": " "}
_VERDICTS = {"met": "met", "missed": "MISSED", "not-known": "unknown"}
_SECTIONS = {
    "server": "SERVERS",
    "key": "KEYS",
    "hits": "HITS",
    "finding": "FINDINGS",
}


def render_gate(gate: GateReport, options: RenderOptions) -> str:
    """Return the gate as text of at most `options.width` columns."""
    return "\n".join(_Text(gate, options).lines()) + "\n"


class _Text:
    def __init__(self, gate: GateReport, options: RenderOptions) -> None:
        self.gate = gate
        self.width = max(60, options.width)
        self.colour = options.colour

    def lines(self) -> Iterator[str]:
        gate, shown = self.gate, sorted_out(self.gate)
        paths = ", ".join(plain(path) for path in gate.deployment_paths)
        yield from self._wrapped(f"prefixaudit {gate.version} gate · {paths}")
        logs = ", ".join(plain(path) for path in gate.log_paths)
        read = f"log {logs}" if logs else "no log: rules about deployments only"
        yield from self._wrapped(f"{len(gate.rules)} rules · {read}")
        yield from self._findings("FINDINGS", shown.failing)
        yield from self._findings("BELOW THE BOUND", shown.passing)
        yield from self._open(shown.open_questions)
        yield from self._known(shown.known)
        yield from self._ignored(shown.ignored)
        yield from self._budgets()
        yield from self._changes()
        notes = [*gate.notes, *(f"not known: {plain(text)}" for text in gate.not_understood)]
        if notes:
            yield ""
            yield self._bold("NOTES")
            for note in notes:
                yield from self._wrapped(f"  - {plain(note)}", 4)
        yield ""
        yield from self._wrapped(f"exit {gate.exit_code}: {plain(gate.verdict)}")

    def _findings(self, title: str, items: Sequence[GateFinding]) -> Iterator[str]:
        if not items:
            return
        yield ""
        yield f"{self._bold(title)}  {len(items):,}"
        for item in items:
            finding = item.finding
            place = place_of(finding, self.gate)
            line = f":{place.line}" if place.line else ""
            yield from self._wrapped(
                f"  {finding.severity.label:<8}{finding.rule}: {message_of(finding)}", 10
            )
            yield from self._wrapped(f"          at {plain(place.path)}{line}", 13)
            for pair in evidence_of(finding):
                yield from self._wrapped(f"          {pair}", 12)
            if finding.remediation:
                text = " ".join(finding.remediation.split())
                yield from self._wrapped(f"          do: {text}", 14)

    def _open(self, items: Sequence[GateFinding]) -> Iterator[str]:
        if not items:
            return
        yield ""
        yield f"{self._bold('WITHOUT AN ANSWER')}  {len(items):,}"
        for rule, members in by_rule(items).items():
            more = f"; and {len(members) - 1:,} more such" if len(members) > 1 else ""
            yield from self._wrapped(f"  {rule}: {message_of(members[0].finding)}{more}", 4)

    def _known(self, items: Sequence[GateFinding]) -> Iterator[str]:
        if not items:
            return
        yield ""
        yield f"{self._bold('KNOWN')}  {len(items):,} in the baseline"
        for item in items:
            finding = item.finding
            yield from self._wrapped(
                f"  {finding.severity.label:<14}{finding.rule}: "
                f"{plain(finding.observation.subject)}",
                16,
            )

    def _ignored(self, items: Sequence[GateFinding]) -> Iterator[str]:
        if not items:
            return
        yield ""
        yield f"{self._bold('IGNORED')}  {len(items):,}"
        for item in items:
            subject = plain(item.finding.observation.subject)
            yield from self._wrapped(f"  {item.finding.rule}: {subject}: {ignored_text(item)}", 4)

    def _budgets(self) -> Iterator[str]:
        if not self.gate.budgets:
            return
        yield ""
        yield self._bold("BUDGETS")
        for budget in self.gate.budgets:
            yield from self._wrapped(f"  {_VERDICTS[budget.verdict]:<9}{budget_text(budget)}", 11)

    def _changes(self) -> Iterator[str]:
        changes = self.gate.changes
        if changes is None:
            return
        yield ""
        if not changes:
            yield f"{self._bold('CHANGES')}  none"
            return
        yield f"{self._bold('CHANGES')}  + better, - worse"
        for kind, title in _SECTIONS.items():
            rows = [change for change in changes if change.kind == kind]
            if rows:
                yield f"  {title}"
            for change in rows:
                yield from self._wrapped(f"  {_EFFECTS[change.effect]} {change_text(change)}", 6)

    def _wrapped(self, text: str, indent: int = 2) -> list[str]:
        return textwrap.wrap(
            text, self.width, subsequent_indent=" " * indent, break_on_hyphens=False
        ) or [""]

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text


def change_text(change: Change) -> str:
    """Return a change in one line."""
    subject, what = plain(change.subject), plain(change.what)
    if change.kind == "finding" and change.what == "finding":
        return f"gone: {subject}" if not change.after else f"new: {subject} ({change.after})"
    return f"{subject}, {what}: {plain(change.before)} -> {plain(change.after)}"
