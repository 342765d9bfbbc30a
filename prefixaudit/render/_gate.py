"""What the formats of a gate share: order, places and texts, all of them safe to print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prefixaudit.core.finding import Finding, Location
from prefixaudit.core.gate import BudgetResult, GateFinding, GateReport
from prefixaudit.printable import printable

_FIRST_EVIDENCE = 3


def plain(text: str) -> str:
    """Return text on one line that any encoder takes: controls and lone surrogates escaped."""
    return printable(text)


def place_of(finding: Finding, gate: GateReport) -> Location:
    """Return where a finding points; the first deployment file where it says nothing."""
    location = finding.observation.location
    if location is not None and location.path:
        return location
    paths = (*gate.deployment_paths, *gate.log_paths, "prefixaudit.toml")
    return Location(path=paths[0])


def message_of(finding: Finding) -> str:
    """Return what was found; an open question says so."""
    message = plain(finding.observation.message)
    if finding.observation.verdict == "inconclusive":
        return f"no answer: {message} ({finding.severity_if_true.label} if true)"
    return message


def evidence_of(finding: Finding) -> Iterator[str]:
    """Yield the first pairs of requests as sentences: ids, places and tokens, no content."""
    for pair in finding.observation.evidence[:_FIRST_EVIDENCE]:
        reader = plain(pair.reader) + (f" ({plain(pair.reader_source)})" * bool(pair.reader_source))
        if not pair.donor:
            yield reader
            continue
        donor = plain(pair.donor) + (f" ({plain(pair.donor_source)})" * bool(pair.donor_source))
        yield f"{reader} was served {pair.num_tokens:,} tokens of {donor}"


def budget_text(budget: BudgetResult) -> str:
    """Return a budget, its figure and its bound in one line."""
    value = figure_text(budget.name, budget.value)
    bound = "at least" if budget.name.startswith("min_") else "at most"
    return (
        f"{budget.name}: {value}, wanted {bound} {figure_text(budget.name, budget.limit)} "
        f"({budget.about})"
    )


def figure_text(name: str, value: float | None) -> str:
    """Return a share as percent and a count as it is; - where it isn't known."""
    if value is None:
        return "not known"
    return f"{value:,.0f}" if name.endswith("_tokens") else f"{100 * value:.2f} %"


def ignored_text(item: GateFinding) -> str:
    """Return why a finding is ignored, by whom and until when."""
    return f"{plain(item.reason)} ({plain(item.owner)}, until {item.expires})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The findings by what becomes of them, each in the order of the audit."""

    failing: tuple[GateFinding, ...]
    passing: tuple[GateFinding, ...]
    open_questions: tuple[GateFinding, ...]
    known: tuple[GateFinding, ...]
    ignored: tuple[GateFinding, ...]


def by_rule(items: Iterable[GateFinding]) -> dict[str, list[GateFinding]]:
    """Return findings by rule, in the order of the first of each."""
    groups: dict[str, list[GateFinding]] = {}
    for item in items:
        groups.setdefault(item.finding.rule, []).append(item)
    return groups


def sorted_out(gate: GateReport) -> Shown:
    """Split the findings: those that fail, those that don't, questions without an answer, rest."""
    new = [item for item in gate.findings if item.status == "new"]
    passing = [item for item in new if not item.fails]
    return Shown(
        failing=tuple(item for item in new if item.fails),
        passing=tuple(i for i in passing if i.finding.observation.verdict == "found"),
        open_questions=tuple(i for i in passing if i.finding.observation.verdict != "found"),
        known=tuple(item for item in gate.findings if item.status == "known"),
        ignored=tuple(item for item in gate.findings if item.status == "ignored"),
    )
