"""The plan as Markdown, for a ticket or a page: recommendation, tables, what they rest on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from prefixaudit.plan.formats import PlanFormat
from prefixaudit.plan.formats._rows import SWEEP_TITLES, percent, table_of
from prefixaudit.plan.report import PlanReport
from prefixaudit.printable import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    lines = [
        "| " + " | ".join(_escaped(head) for head in heads) + " |",
        "| " + " | ".join("---:" if number else "---" for number in numbers) + " |",
    ]
    lines += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _parts(report: PlanReport) -> Iterator[str]:
    names = ", ".join(report.files)
    yield f"# Plan for {_escaped(names)}"
    yield (
        f"{report.num_requests:,} requests, {report.num_prompt_tokens:,} prompt tokens, blocks of "
        f"{report.block_size:,} tokens."
    )
    if report.incomplete is not None:
        yield f"**Incomplete:** {_escaped(report.incomplete)}"
    if report.recommendation is not None:
        yield f"**{_escaped(report.recommendation.action)}**"
        yield "\n".join(f"* {_escaped(reason)}" for reason in report.recommendation.reasons)
    if report.findings:
        yield "\n".join(f"* {_escaped(finding)}" for finding in report.findings)
    for sweep, title in SWEEP_TITLES.items():
        options = tuple(option for option in report.options if option.sweep == sweep)
        if options:
            yield f"## {title.capitalize()}"
            yield _table(*table_of(options))
            notes = [f"* {_escaped(o.label)}: {_escaped(o.note)}" for o in options if o.note]
            if notes:
                yield "\n".join(notes)
    if report.prefixes:
        yield "## Largest prefixes"
        yield _table(
            ["hash", "tokens", "requests", "own blocks", "blocks below"],
            [
                [
                    prefix.hash,
                    f"{prefix.num_tokens:,}",
                    f"{prefix.num_requests:,}",
                    f"{prefix.num_own_blocks:,}",
                    f"{prefix.num_below_blocks:,}",
                ]
                for prefix in report.prefixes
            ],
            [False, True, True, True, True],
        )
    if report.losers:
        yield "## Hurt by half the pool"
        yield _table(
            ["group", "requests", "hit rate", "in half"],
            [
                [
                    loser.group,
                    f"{loser.num_requests:,}",
                    percent(loser.hit_rate),
                    percent(loser.hit_rate_in_half),
                ]
                for loser in report.losers
            ],
            [False, True, True, True],
        )
    yield "## Assumed"
    yield "\n".join(f"* {_escaped(line)}" for line in (*report.assumptions, *report.notes))


def _render(report: PlanReport) -> str:
    return "\n\n".join(_parts(report)) + "\n"


FORMAT = PlanFormat(title="Markdown", render=_render)
