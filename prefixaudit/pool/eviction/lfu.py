"""Least frequently used: the leaf with the fewest hits goes first, then by recency.

SGLang's plain tree counts from 0.5.10 on; before, every count is 0 and this is `lru`.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (leaf.num_hits, leaf.last_access)


POLICY = EvictionPolicy(title="least frequently used", rank=_rank)
