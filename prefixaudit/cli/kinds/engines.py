"""Engines: their keys, lookups and evictions by version."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.engines import ENGINES

    return tuple(ENGINES)


def _table() -> Table:
    from prefixaudit.engines import describe_engines

    return Table(
        heads=("engine", "versions", "what", "tiers"),
        rows=tuple(
            (
                row.name,
                row.versions,
                row.title,
                ", ".join(row.tiers),
            )
            for row in describe_engines()
        ),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.engines import describe_profile, load_profile

    described = describe_profile(load_profile(name))
    lines = [described.title]
    for section in described.sections:
        if section.rows:
            lines += ["", section.title, *labelled(section.rows)]
    return lines


KIND = Kind(
    title="engines whose cache can be modelled",
    singular="engine",
    names=_names,
    table=_table,
    explain=_explain,
)
