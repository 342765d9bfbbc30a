"""The hardware table: what GPUs compute and read a second, and what links carry.

Read from hardware.toml beside this module. Peaks are dense. Nothing here says what a real kernel
reaches: that is `cost.time`'s business.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.tables import Table, TomlDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. Peaks in FLOP a second, dense; bandwidths in bytes a second, one direction.

    `memory_bytes` is the range of what the driver reports: one value where it was seen in logs,
    else a little below what is sold. `is_checked` False: not read again in the source itself.
    """

    name: str
    title: str
    bf16_flops_per_s: float
    fp8_flops_per_s: float | None
    memory_gb: float
    memory_bytes: tuple[int, int]
    bandwidth_bytes_per_s: float
    host_link_bytes_per_s: float
    peer_link_bytes_per_s: float | None
    source: str
    is_checked: bool

    @property
    def ridge_tokens(self) -> float:
        """Return the tokens for which dense bf16 compute takes as long as reading the weights."""
        return self.bf16_flops_per_s / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A place that cached blocks are fetched from.

    Either a range of bytes a second, or a share of the GPU's host link; `fixed_s` is what a fetch
    takes however short it is.
    """

    name: str
    title: str
    bytes_per_s: tuple[float, float] | None
    host_link_share: tuple[float, float] | None
    fixed_s: tuple[float, float]
    source: str

    def bandwidth(self, gpu: Gpu) -> tuple[float, float]:
        """Return the range of bytes a second that arrive in one GPU."""
        if self.host_link_share is not None:
            lo, hi = self.host_link_share
            return lo * gpu.host_link_bytes_per_s, hi * gpu.host_link_bytes_per_s
        assert self.bytes_per_s is not None
        return self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """All GPUs and tiers by name."""

    gpus: Mapping[str, Gpu]
    tiers: Mapping[str, Tier]


# What the driver keeps back of the memory that is sold: 79.3 of 80, 23.6 of 24.
_REPORTED_SHARE = (0.98, 1.0)


@cache
def load_hardware() -> Hardware:
    """Return the table that comes with the package."""
    path = importlib.resources.files("prefixaudit.cost") / "hardware.toml"
    document = TomlDocument.read(path, source="hardware.toml")
    document.root.integer("schema", minimum=1, maximum=1)
    gpu_tables, tier_tables = document.root.table("gpu"), document.root.table("tier")
    gpus = {name: _read_gpu(name, gpu_tables.table(name)) for name in gpu_tables}
    tiers = {name: _read_tier(name, tier_tables.table(name)) for name in tier_tables}
    document.finish()
    return Hardware(gpus=MappingProxyType(gpus), tiers=MappingProxyType(tiers))


def find_gpu(name: str) -> Gpu:
    """Return a GPU by name. Raises UsageError, with the known names, where there is none."""
    gpus = load_hardware().gpus
    if name not in gpus:
        raise UsageError(unknown_name("GPU", name, gpus))
    return gpus[name]


def find_tier(name: str) -> Tier:
    """Return a tier by name. Raises UsageError, with the known names, where there is none."""
    tiers = load_hardware().tiers
    if name not in tiers:
        raise UsageError(unknown_name("tier", name, tiers))
    return tiers[name]


def _read_gpu(name: str, table: Table) -> Gpu:
    memory_gb = table.number("memory_gb", minimum=1)
    memory_gib = table.number("memory_gib", default=None, minimum=1)
    if memory_gib is not None:
        reported = (memory_gib, memory_gib)
    else:
        reported = (memory_gb * _REPORTED_SHARE[0], memory_gb * _REPORTED_SHARE[1])
    fp8 = table.number("fp8_tflops", default=None, minimum=1)
    peer = table.number("peer_link_gb_s", default=None, minimum=1)
    return Gpu(
        name=name,
        title=table.text("title"),
        bf16_flops_per_s=table.number("bf16_tflops", minimum=1) * 1e12,
        fp8_flops_per_s=None if fp8 is None else fp8 * 1e12,
        memory_gb=memory_gb,
        memory_bytes=(int(reported[0] * 2**30), int(reported[1] * 2**30)),
        bandwidth_bytes_per_s=table.number("bandwidth_gb_s", minimum=1) * 1e9,
        host_link_bytes_per_s=table.number("host_link_gb_s", minimum=1) * 1e9,
        peer_link_bytes_per_s=None if peer is None else peer * 1e9,
        source=table.text("source"),
        is_checked=table.boolean("checked"),
    )


def _read_tier(name: str, table: Table) -> Tier:
    speed = _range(table, "gb_s")
    share = _range(table, "share")
    if table.text("over", default=None, choices=("host_link",)) is None:
        share = None
    if speed is None and share is None:
        table.problem("gb_s", "missing; expected two numbers, or `over` and `share`")
    fixed = _range(table, "fixed_ms") or (0.0, 0.0)
    return Tier(
        name=name,
        title=table.text("title"),
        bytes_per_s=None if speed is None else (speed[0] * 1e9, speed[1] * 1e9),
        host_link_share=share,
        fixed_s=(fixed[0] / 1e3, fixed[1] / 1e3),
        source=table.text("source"),
    )


def _range(table: Table, key: str) -> tuple[float, float] | None:
    value = table.any_value(key, default=None)
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(item, int | float) for item in value)
        or not 0 <= value[0] <= value[1]
    ):
        table.problem(key, "expected two numbers, the lower one first")
        return None
    return float(value[0]), float(value[1])
