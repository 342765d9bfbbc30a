"""Eviction policies of radix trees (SGLang)."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.pool.eviction import POLICIES

    return POLICIES.names


def _table() -> Table:
    from prefixaudit.pool.eviction import POLICIES

    return Table(
        heads=("policy", "what goes first"),
        rows=tuple((name, POLICIES[name].title) for name in POLICIES.names),
    )


def _explain(name: str) -> list[str]:
    import sys

    from prefixaudit.pool.eviction import POLICIES

    policy = POLICIES[name]
    module = sys.modules[f"prefixaudit.pool.eviction.{name.replace('-', '_')}"]
    rows = [("what goes first", policy.title), ("rule", " ".join((module.__doc__ or "").split()))]
    return [f"eviction policy {name}", "", *labelled(rows)]


KIND = Kind(
    title="eviction policies of radix trees",
    singular="policy",
    names=_names,
    table=_table,
    explain=_explain,
)
