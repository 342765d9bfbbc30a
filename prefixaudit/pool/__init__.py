"""Replays a BlockTrace against a pool of blocks.

lru          exact LRU hits for every capacity in one pass, hits and donors at one
lru_kernels  its loops
curves       a curve's knee and the capacities worth showing
rates        the definitions of a hit rate, told apart
vllm, sglang the engines' own pools, operation by operation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefixaudit.pool.curves import find_knee as find_knee
    from prefixaudit.pool.curves import informative_capacities as informative_capacities
    from prefixaudit.pool.lru import hits_at as hits_at
    from prefixaudit.pool.lru import replay_lru as replay_lru
    from prefixaudit.pool.rates import hit_rates as hit_rates

_HOMES = {
    "find_knee": "curves",
    "hit_rates": "rates",
    "hits_at": "lru",
    "informative_capacities": "curves",
    "replay_lru": "lru",
}

__all__ = ["find_knee", "hit_rates", "hits_at", "informative_capacities", "replay_lru"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: replay needs numba, `--help` does not."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
