"""Lowest priority first, then by recency.

A node has the highest priority of the requests that passed it. Without priorities this is `lru`.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (leaf.priority, leaf.last_access)


POLICY = EvictionPolicy(title="lowest priority, then least recently used", rank=_rank)
