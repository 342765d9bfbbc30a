"""Replays a BlockTrace against a pool of blocks.

lru              exact LRU hits for every capacity in one pass, hits and donors at one
separate         traces relabelled by a key: nothing is shared across namespaces
curves           a curve's knee and the capacities worth showing
rates            the definitions of a hit rate, told apart
resolution       what a trace's coarse blocks leave open for an engine's finer ones
forks            what several samples of one prompt hold
vllm, sglang     the engines' own pools, operation by operation
eviction         policies of radix trees, one file each
explicit         vLLM's block pool at chosen capacities; explicit_blocks: ids of a request's blocks
explicit_curve   its curve, and where that is exact; tails: blocks that a request takes at its end
explicit_engine  the pool of an engine profile at chosen capacities

The loops are compiled and stand alone in `*_kernels.py`, each beside the module that calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.lazy_names import lazy_names

if TYPE_CHECKING:
    from prefixaudit.pool.curves import find_knee as find_knee
    from prefixaudit.pool.curves import informative_capacities as informative_capacities
    from prefixaudit.pool.explicit_engine import describe_pool as describe_pool
    from prefixaudit.pool.explicit_engine import simulate_engine as simulate_engine
    from prefixaudit.pool.lru import hits_at as hits_at
    from prefixaudit.pool.lru import replay_lru as replay_lru
    from prefixaudit.pool.lru import replay_lru_at as replay_lru_at
    from prefixaudit.pool.rates import hit_rates as hit_rates
    from prefixaudit.pool.rates import hit_rates_at as hit_rates_at
    from prefixaudit.pool.resolution import finer_block_hits as finer_block_hits

__all__ = [
    "describe_pool",
    "find_knee",
    "finer_block_hits",
    "hit_rates",
    "hit_rates_at",
    "hits_at",
    "informative_capacities",
    "replay_lru",
    "replay_lru_at",
    "simulate_engine",
]

__getattr__ = lazy_names(
    __name__,
    {
        "describe_pool": "explicit_engine",
        "find_knee": "curves",
        "finer_block_hits": "resolution",
        "hit_rates": "rates",
        "hit_rates_at": "rates",
        "hits_at": "lru",
        "informative_capacities": "curves",
        "replay_lru": "lru",
        "replay_lru_at": "lru",
        "simulate_engine": "explicit_engine",
    },
)
