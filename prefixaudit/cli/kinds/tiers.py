"""Tiers that cached blocks are fetched from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled

if TYPE_CHECKING:
    from prefixaudit.cost.hardware import Tier


def _names() -> tuple[str, ...]:
    from prefixaudit.cost.hardware import load_hardware

    return tuple(sorted(load_hardware().tiers))


def _table() -> Table:
    from prefixaudit.cost.hardware import load_hardware

    return Table(
        heads=("tier", "speed", "fixed", "what"),
        rows=tuple(
            (tier.name, _speed(tier), _fixed(tier), tier.title)
            for tier in load_hardware().tiers.values()
        ),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.cost.hardware import find_tier

    tier = find_tier(name)
    rows = [("speed", _speed(tier)), ("fixed cost", _fixed(tier)), ("source", tier.source)]
    return [tier.title, "", *labelled(rows)]


def _speed(tier: Tier) -> str:
    if tier.host_link_share is not None:
        lo, hi = tier.host_link_share
        return f"{lo:.0%} to {hi:.0%} of the GPU's host link"
    assert tier.bytes_per_s is not None
    lo, hi = tier.bytes_per_s
    return f"{lo / 1e9:g} to {hi / 1e9:g} GB/s"


def _fixed(tier: Tier) -> str:
    lo, hi = tier.fixed_s
    return f"{lo * 1e3:g} to {hi * 1e3:g} ms"


KIND = Kind(
    title="tiers that cached blocks are fetched from",
    singular="tier",
    names=_names,
    table=_table,
    explain=_explain,
)
