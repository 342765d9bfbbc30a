"""First in, first out: the leaf whose node was made longest ago goes first.

A hit doesn't change the order, but a split makes a new node of the shared head.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (leaf.created,)


POLICY = EvictionPolicy(title="first in, first out", rank=_rank)
