"""What `template check` and `template diff` print: tables for a terminal, and values for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from prefixaudit.core.gate import GateReport
from prefixaudit.core.report import RenderOptions
from prefixaudit.core.template import (
    LogChange,
    PromptChange,
    SteadyState,
    TemplateAnswer,
    TemplateDiff,
    TemplateReport,
)
from prefixaudit.render._gate import message_of, place_of, plain

SCHEMA_VERSION: Final = 1
_FIRST_POSITIONS: Final = 5
_HINTS: Final = {
    "clock": "reads the clock",
    "random": "chooses at random",
    "loop-end": "asks what follows a message",
    "last-message": "looks at the newest message",
    "backwards": "walks through messages from the end",
    "looked-for-ahead": "looks for a message in a loop of its own",
    "cut-content": "cuts content",
    "trimmed-content": "strips content",
    "forbidden": "changes a list or dictionary, which the sandbox forbids",
}
_CHANGES: Final = {
    "same": "the same",
    "changed": "changed",
    "refused-now": "refused now",
    "rendered-now": "rendered now",
    "refused-by-both": "refused by both",
}


def check_text(
    report: TemplateReport, gate: GateReport, options: RenderOptions, *, show_text: bool = False
) -> str:
    """Return a check as text: the table, findings with their remedy, hints, notes, the verdict."""
    page = _Page(options)
    page.line(f"prefixaudit {report.version} template check · {', '.join(report.paths)}")
    how = "as the client sent them" if report.rules == "as-sent" else f"as {report.rules} does"
    page.line(f"lengths in {report.unit} · messages prepared {how}")
    group = ""
    for answer in report.answers:
        if answer.group != group:
            group = answer.group
            page.head(group.upper())
        page.line(_row(answer), 74)
        if show_text and answer.shown is not None:
            page.shown(answer.shown)
    page.findings(gate)
    if report.hints:
        page.head("PLACES IN THE TEMPLATE")
        by_kind: dict[str, list[str]] = {}
        for hint in report.hints:
            line = f"line {hint.line}" if hint.line else hint.path
            by_kind.setdefault(hint.kind, []).append(f"{line} {hint.name}")
        for kind, places in by_kind.items():
            page.line(f"  {_HINTS.get(kind, kind)}: {', '.join(places)}", 4)
    if report.variables:
        page.line("")
        page.line(f"variables that callers may set: {', '.join(report.variables)}", 2)
    page.notes(report.notes)
    page.verdict(gate)
    return page.text()


def _row(answer: TemplateAnswer) -> str:
    lost = ""
    if answer.num_lost:
        lost = f"{answer.num_lost:,} of {answer.num_prompt:,}"
    return f"  {answer.question:<44} {answer.verdict:<9}{lost:>16}  {answer.about}".rstrip()


def check_values(report: TemplateReport, gate: GateReport) -> dict[str, Any]:
    """Return a check as plain values; `schemas/template-check.schema.json` describes them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": report.version},
        "exit_code": gate.exit_code,
        "verdict": gate.verdict,
        "incomplete": report.incomplete,
        "templates": list(report.paths),
        "tokenizer": report.tokenizer,
        "unit": report.unit,
        "server": report.rules,
        "fail_on": "never" if gate.fail_on is None else gate.fail_on.label,
        "answers": [
            {
                "name": answer.name,
                "group": answer.group,
                "question": answer.question,
                "verdict": answer.verdict,
                "about": answer.about,
                "num_lost": answer.num_lost,
                "num_prompt": answer.num_prompt,
            }
            for answer in report.answers
        ],
        "findings": _findings(gate),
        "hints": [asdict(hint) for hint in report.hints],
        "variables": list(report.variables),
        "notes": list(report.notes),
    }


def diff_text(
    diff: TemplateDiff, gate: GateReport, options: RenderOptions, *, show_text: bool = False
) -> str:
    """Return a diff as text: conversations, answers, the log, the roll-out, the verdict."""
    page = _Page(options)
    old, new = ", ".join(diff.old_paths), ", ".join(diff.new_paths)
    page.line(f"prefixaudit {diff.version} template diff · {old} -> {new}")
    page.line(f"lengths in {diff.unit}")
    num_changed = sum(prompt.kind not in ("same", "refused-by-both") for prompt in diff.prompts)
    page.head(f"CONVERSATIONS  {num_changed} of {len(diff.prompts)} change")
    for prompt in diff.prompts:
        page.line(_prompt_row(prompt), 50)
        if show_text and prompt.shown is not None:
            page.shown(prompt.shown)
    if diff.answers:
        page.head("ANSWERS OF TEMPLATE CHECK THAT CHANGE")
        for answer in diff.answers:
            lost = ""
            if answer.num_lost_before != answer.num_lost_after:
                before, after = (
                    "-" if count is None else f"{count:,}"
                    for count in (answer.num_lost_before, answer.num_lost_after)
                )
                lost = f"  lost {before} -> {after}"
            page.line(f"  {answer.question:<44} {answer.before} -> {answer.after}{lost}", 4)
    if diff.log is not None:
        for text in _log_lines(diff.log):
            if text.isupper() or text.startswith("ROLL-OUT"):
                page.head(text)
            else:
                page.line(text, 40)
    page.findings(gate)
    page.notes(diff.notes)
    page.verdict(gate)
    return page.text()


def _prompt_row(prompt: PromptChange) -> str:
    row = f"  {prompt.name:<34} {_CHANGES[prompt.kind]:<16}"
    if prompt.first_changed is not None:
        row += (
            f"from {prompt.first_changed:,} on, length {prompt.num_before:,} -> "
            f"{prompt.num_after:,}"
        )
    return row.rstrip()


def _log_lines(log: LogChange) -> Iterator[str]:
    num_chats = log.num_same + log.num_changed
    yield "THE LOG"
    yield f"  {log.num_changed:>12,}  of {num_chats:,} chats change"
    for place, count in log.changed_at[:_FIRST_POSITIONS]:
        yield f"  {count:>12,}  of them from {place} on"
    if log.first_changed:
        position, count = log.first_changed[0]
        yield f"  {count:>12,}  of them from token {position:,} on"
    yield (
        f"  {log.num_prompt_tokens_kept:>12,}  of {log.before.num_prompt_tokens:,} prompt tokens "
        "stay where they are"
    )
    for kind, count in log.refused_now.items():
        yield f"  {count:>12,}  refused by the new template ({kind})"
    for kind, count in log.rendered_now.items():
        yield f"  {count:>12,}  refused by the old template alone ({kind})"
    if log.num_refused_by_both:
        yield f"  {log.num_refused_by_both:>12,}  refused by both"
    if log.num_unaffected:
        yield f"  {log.num_unaffected:>12,}  requests whose prompt no server template makes"
    capacity = (
        "an endless pool"
        if log.capacity_blocks is None
        else f"a pool of {log.capacity_blocks:,} blocks"
    )
    yield f"  {capacity}, {log.block_size}-token blocks"
    yield "STEADY STATE"
    yield f"  {'':<24}{'old template':>18}{'new template':>18}"
    for title, name in (
        ("prompt tokens", "num_prompt_tokens"),
        ("cached tokens", "num_cached_tokens"),
        ("token hit rate", "token_hit_rate"),
        ("prefill FLOPs", "prefill_flops"),
        ("prefill FLOPs saved", "prefill_flops_saved"),
    ):
        cells = [_cell(getattr(state, name), name) for state in (log.before, log.after)]
        if "-" not in cells:
            yield f"  {title:<24}{cells[0]:>18}{cells[1]:>18}"
    yield from _roll_out_lines(log)


def _roll_out_lines(log: LogChange) -> Iterator[str]:
    out = log.roll_out
    yield (
        f"ROLL-OUT  the old template serves {out.first_request:,} requests, "
        f"the new one {out.num_requests_after:,}"
    )
    share = out.useless_share
    useless = "" if share is None else f" ({100 * share:.2f} %)"
    yield (
        f"  {out.num_useless_tokens:>16,}  of {out.num_resident_tokens:,} cached tokens become "
        f"useless{useless}"
    )
    yield f"  {out.num_lost_tokens:>16,}  tokens are computed once more to warm up again"
    if out.lost_flops is not None:
        yield f"  {out.lost_flops:>16.3g}  FLOPs for it"
    if out.lost_s is not None:
        low, high = out.lost_s
        yield f"  {f'{low:.3g}-{high:.3g}':>16}  seconds of prefill for it"
    yield f"  {out.num_requests_until_warm:>16,}  requests until none loses anything"


def _cell(value: float | None, name: str) -> str:
    if value is None:
        return "-"
    if name.endswith("_rate"):
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if name.endswith("_tokens") else f"{value:.4g}"


def diff_values(diff: TemplateDiff, gate: GateReport) -> dict[str, Any]:
    """Return a diff as plain values; `schemas/template-diff.schema.json` describes them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "prefixaudit", "version": diff.version},
        "exit_code": gate.exit_code,
        "verdict": gate.verdict,
        "incomplete": diff.incomplete,
        "old": list(diff.old_paths),
        "new": list(diff.new_paths),
        "logs": list(diff.log_paths),
        "unit": diff.unit,
        "fail_on": "never" if gate.fail_on is None else gate.fail_on.label,
        "prompts": [
            {name: value for name, value in asdict(prompt).items() if name != "shown"}
            for prompt in diff.prompts
        ],
        "answers": [asdict(answer) for answer in diff.answers],
        "findings": _findings(gate),
        "log": None if diff.log is None else _log_values(diff.log),
        "notes": list(diff.notes),
    }


def _log_values(log: LogChange) -> dict[str, Any]:
    def state(value: SteadyState) -> dict[str, Any]:
        return asdict(value)

    out = log.roll_out
    return {
        "num_requests": log.num_requests,
        "num_unaffected": log.num_unaffected,
        "num_same": log.num_same,
        "num_changed": log.num_changed,
        "num_refused_now": dict(log.refused_now),
        "num_rendered_now": dict(log.rendered_now),
        "num_refused_by_both": log.num_refused_by_both,
        "first_changed": [
            {"token": position, "num_requests": count} for position, count in log.first_changed
        ],
        "changed_at": [{"place": place, "num_requests": count} for place, count in log.changed_at],
        "num_prompt_tokens_kept": log.num_prompt_tokens_kept,
        "block_size": log.block_size,
        "capacity_blocks": log.capacity_blocks,
        "before": state(log.before),
        "after": state(log.after),
        "roll_out": {
            **asdict(out),
            "useless_share": out.useless_share,
            "lost_s": None if out.lost_s is None else list(out.lost_s),
        },
    }


def _findings(gate: GateReport) -> list[dict[str, Any]]:
    rows = []
    for item in gate.findings:
        finding = item.finding
        place = place_of(finding, gate)
        rows.append(
            {
                "rule": finding.rule,
                "title": finding.title,
                "severity": finding.severity.label,
                "fails": item.fails,
                "message": finding.observation.message,
                "fingerprint": finding.fingerprint,
                "location": {"path": place.path, "line": place.line or None},
                "remediation": finding.remediation,
            }
        )
    return rows


class _Page:
    """Lines of at most a width; heads are bold where there is colour."""

    def __init__(self, options: RenderOptions) -> None:
        self._width = max(60, options.width)
        self._colour = options.colour
        self._lines: list[str] = []

    def line(self, text: str, indent: int = 2) -> None:
        self._lines += textwrap.wrap(
            plain(text),
            self._width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            drop_whitespace=True,
        ) or [""]

    def head(self, text: str) -> None:
        self._lines.append("")
        safe = plain(text)
        self._lines.append(f"\x1b[1m{safe}\x1b[0m" if self._colour else safe)

    def shown(self, texts: tuple[str, str]) -> None:
        for label, text in zip(("earlier", "later"), texts, strict=True):
            quoted = plain(text.replace("\n", "\\n"))
            self._lines.append(f"      {label:<8}{quoted[: self._width - 14]}")

    def findings(self, gate: GateReport) -> None:
        if not gate.findings:
            return
        self.head(f"FINDINGS  {len(gate.findings)}")
        for item in gate.findings:
            finding = item.finding
            place = place_of(finding, gate)
            at = f":{place.line}" if place.line else ""
            self.line(f"  {finding.severity.label:<14}{finding.rule}: {message_of(finding)}", 16)
            self.line(f"                at {place.path}{at}", 19)
            if finding.remediation:
                self.line(f"                do: {finding.remediation}", 20)

    def notes(self, notes: tuple[str, ...]) -> None:
        if notes:
            self.head("NOTES")
            for note in notes:
                self.line(f"  - {note}", 4)

    def verdict(self, gate: GateReport) -> None:
        self._lines.append("")
        self.line(f"exit {gate.exit_code}: {gate.verdict}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
