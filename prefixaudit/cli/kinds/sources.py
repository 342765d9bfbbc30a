"""Kinds of deployment files that `gate` and `init` read."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.deployment.sources import SOURCES

    return SOURCES.names


def _table() -> Table:
    from prefixaudit.deployment.sources import SOURCES

    return Table(
        heads=("source", "what it is"),
        rows=tuple((name, SOURCES[name].title) for name in SOURCES.names),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.deployment.sources import SOURCES

    rows = [
        ("what it is", SOURCES[name].title),
        ("recognised", "by content; `prefixaudit init FILE` shows what is understood"),
    ]
    return [f"deployment source {name}", "", *labelled(rows)]


KIND = Kind(
    title="deployment files that gate and init read",
    singular="source",
    names=_names,
    table=_table,
    explain=_explain,
)
