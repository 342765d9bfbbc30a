"""First in, last out: the leaf whose node was made last goes first.

What filled the pool first stays, whether it is used or not.
"""

from __future__ import annotations

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank


def _rank(leaf: Leaf) -> Rank:
    return (-leaf.created,)


POLICY = EvictionPolicy(title="first in, last out", rank=_rank)
