"""Output formats of reports."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.render import RENDERERS

    return RENDERERS.names


def _table() -> Table:
    from prefixaudit.render import RENDERERS

    return Table(
        heads=("format", "what it is"),
        rows=tuple((name, RENDERERS[name].title) for name in RENDERERS.names),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.render import RENDERERS

    rows = [("what it is", RENDERERS[name].title), ("option", f"--format {name}")]
    return [f"output format {name}", "", *labelled(rows)]


KIND = Kind(
    title="output formats of reports",
    singular="renderer",
    names=_names,
    table=_table,
    explain=_explain,
)
