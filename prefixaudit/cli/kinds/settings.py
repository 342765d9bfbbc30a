"""Settings of a server that rules ask about: the keys of `[server.settings]`."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled
from prefixaudit.errors import UsageError, unknown_name


def _names() -> tuple[str, ...]:
    from prefixaudit.deployment.settings import SETTINGS

    return tuple(sorted(SETTINGS))


def _table() -> Table:
    from prefixaudit.deployment.settings import SETTINGS

    return Table(
        heads=("setting", "value", "what it is"),
        rows=tuple((name, *SETTINGS[name]) for name in _names()),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.deployment.settings import SETTINGS

    if name not in SETTINGS:
        raise UsageError(unknown_name("setting", name, SETTINGS))
    kind, about = SETTINGS[name]
    unset = "off" if kind == "flag" else "known to be unset"
    rows = [("what it is", about), ("value", kind), ("false", unset)]
    return [f"setting {name}", "", *labelled(rows)]


KIND = Kind(
    title="settings of a server in prefixaudit.toml",
    singular="setting",
    names=_names,
    table=_table,
    explain=_explain,
)
