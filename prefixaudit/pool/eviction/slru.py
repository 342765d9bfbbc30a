"""Segmented LRU: leaves that were never reused go first, then the reused ones, each by recency.

SGLang 0.5.10 and later. A node is protected from its second hit on. Up to 0.5.21 a prefill and the
end of a request are one hit each, so what a finished request stored alone is protected already.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank

PROTECTED_FROM_HITS: Final = 2
"""SGLang's `protected_threshold`."""


def _rank(leaf: Leaf) -> Rank:
    return (int(leaf.num_hits >= PROTECTED_FROM_HITS), leaf.last_access)


POLICY = EvictionPolicy(title="segmented least recently used", rank=_rank)
