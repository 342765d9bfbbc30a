"""Least recently used: the leaf that was not looked up or inserted for the longest time goes first.

The default of SGLang. A split gives both parts a fresh time, so the tail of a node survives a hit
on its head.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (leaf.last_access,)


POLICY = EvictionPolicy(title="least recently used", rank=_rank)
