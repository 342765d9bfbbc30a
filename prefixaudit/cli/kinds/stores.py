"""Kinds of stores and routers: the `kind` of a `[[tier]]`."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled
from prefixaudit.errors import UsageError, unknown_name


def _names() -> tuple[str, ...]:
    from prefixaudit.deployment.tiers import KINDS

    return tuple(sorted(KINDS))


def _table() -> Table:
    return Table(heads=("kind", "profile"), rows=tuple((name, _profile(name)) for name in _names()))


def _profile(name: str) -> str:
    from prefixaudit.deployment.tiers import KINDS

    kind = KINDS[name]
    return f"{kind.profile}:{kind.tier or 'the tier of the engine of its servers'}"


def _explain(name: str) -> list[str]:
    if name not in _names():
        raise UsageError(unknown_name("store", name, _names()))
    rows = [
        ("in prefixaudit.toml", f'[[tier]] kind = "{name}"'),
        ("profile", _profile(name)),
        ("its key", f"prefixaudit explain engine:{_profile(name).partition(':')[0]}"),
    ]
    return [f"store {name}", "", *labelled(rows)]


KIND = Kind(
    title="stores and routers that a [[tier]] can be",
    singular="store",
    names=_names,
    table=_table,
    explain=_explain,
)
