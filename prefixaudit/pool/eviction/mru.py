"""Most recently used: the leaf that was looked up or inserted last goes first.

Keeps old prefixes when a log runs through more prompts than fit, again and again.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (-leaf.last_access,)


POLICY = EvictionPolicy(title="most recently used", rank=_rank)
