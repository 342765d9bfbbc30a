"""Segmented LRU: leaves that were never reused go first, then the reused ones, each by recency.

SGLang 0.5.10 and later. A node is protected from the second insertion that passes it; a prefill
and its end insert once each, so what a finished request stored alone can be protected already.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.pool.eviction import EvictionPolicy, Leaf, Rank

PROTECTED_FROM_HITS: Final = 2
"""SGLang's `protected_threshold`."""


def _rank(leaf: Leaf) -> Rank:
    return (int(leaf.num_hits >= PROTECTED_FROM_HITS), leaf.last_access)


POLICY = EvictionPolicy(title="segmented least recently used", rank=_rank)
