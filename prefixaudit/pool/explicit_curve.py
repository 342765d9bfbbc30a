"""The hit curve of vLLM's block pool in one pass, and where it is exact.

Plain LRU (`pool.lru`) differs from the block pool in four ways. Two can be put into the same pass:

* A tail block without a key takes a slot. Where it queues with the others (up to 0.23) it is one
  more block that nobody hits, behind the request's own: a node of the tree, used once.
* Where it goes to the front of the free queue (from 0.24), the next request takes it first. Of C
  blocks, C - 1 hold keys then, and all C where the request before had no such tail.

Two can't, since what a larger pool holds is then no superset of what a smaller one holds:

* A block that is computed again while the pool holds it (the last-token rule, an equal answer, a
  request that reads no cache, EAGLE's dropped block) is stored twice, and either copy may be hit.
* A prompt larger than the pool is refused. At capacities from the largest request on that can't be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.pool import HitCurve
from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool
from prefixaudit.pool.lru import replay_lru
from prefixaudit.pool.tails import num_slots, with_tails

_RADIX_REASON: Final = (
    "a radix tree evicts whole leaves, so a larger pool doesn't hold all that a smaller one holds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What of a trace decides whether one pass is exact for a block pool.

    num_repeated_blocks  blocks that requests compute although an endless pool holds them; each is
                         stored twice
    most_slots           blocks of the largest request, its tail and its answer included
    """

    num_repeated_blocks: int
    most_slots: int


def trace_facts(trace: BlockTrace, namespaces: Int32Array, rules: BlockPoolRules) -> TraceFacts:
    """Return the facts of a trace, by one run of an endless pool."""
    pool = simulate_pool(trace, namespaces, capacity_blocks=None, rules=rules, with_donors=False)
    return TraceFacts(
        num_repeated_blocks=pool.num_duplicate_blocks,
        most_slots=int(num_slots(trace)[1].max(initial=0)),
    )


def block_pool_rules(profile: EngineProfile, *, use_eagle: bool = False) -> BlockPoolRules | None:
    """Return the rules of a profile's own pool; None where it is no block pool."""
    facts = profile.pool
    if facts is None or facts.eviction_regime not in ("all-to-back", "unhashed-to-front"):
        return None
    return BlockPoolRules(
        unhashed_first=facts.eviction_regime == "unhashed-to-front",
        drops_last_block=use_eagle and facts.drops_block_with_eagle,
        min_recomputed_tokens=profile.min_recomputed_tokens,
        num_reserved_blocks=facts.num_reserved_blocks,
    )


def one_pass_is_exact(
    profile: EngineProfile, facts: TraceFacts | None, *, use_eagle: bool = False
) -> tuple[bool, str]:
    """Say whether the one-pass curve is what the engine's pool gives, and why or why not.

    `facts` are needed for a block pool (see `trace_facts`). For one that is exact, that holds from
    `exact_from_blocks` on. The curve is `block_pool_curve` for block pools, `replay_lru` otherwise.
    """
    regime = "not-modelled" if profile.pool is None else profile.pool.eviction_regime
    if regime == "lru":
        return True, "plain LRU of blocks that are held once"
    if regime == "leaves":
        return False, _RADIX_REASON
    rules = block_pool_rules(profile, use_eagle=use_eagle)
    if rules is None:
        return False, f"eviction of this engine ('{regime}') isn't modelled; the curve is plain LRU"
    if facts is None:
        return False, "nothing is known of the trace"
    if rules.drops_last_block:
        return False, "the drafter drops the last block of each hit, which is then stored twice"
    if rules.min_recomputed_tokens < 1:
        return False, "a full hit takes no block, so the tail before it stays in the pool"
    if facts.num_repeated_blocks:
        return False, (
            f"{facts.num_repeated_blocks:,} blocks are computed while the pool may hold them "
            "(prompts that end on a block, equal answers), and two copies take two slots"
        )
    return True, (
        f"no block is stored twice; exact from {exact_from_blocks(rules, facts):,} blocks on, "
        "the largest request"
    )


def exact_from_blocks(rules: BlockPoolRules, facts: TraceFacts) -> int:
    """Return the capacity from which no request is refused or cut."""
    return facts.most_slots + rules.num_reserved_blocks


def block_pool_curve(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    rules: BlockPoolRules,
    flops_by_depth: Float64Array | None = None,
) -> HitCurve:
    """Return hits at every capacity of a block pool, reserved and tail blocks counted.

    Exact where `one_pass_is_exact` says so; elsewhere copies of blocks are left out, and a prompt
    larger than the pool still leaves its front there. `flops_by_depth` as for `replay_lru`.
    """
    _, slots = num_slots(trace)
    tails = slots - trace.num_blocks
    parts: list[tuple[int, BlockTrace]]
    if rules.unhashed_first:
        # A request meets a pool that the tail of the one before it made smaller.
        order = trace.replay_order()
        order = order[slots[order] > 0]
        shift = np.zeros_like(tails)
        shift[order[1:]] = tails[order[:-1]]
        parts = [
            (int(number), replace(trace, reads_cache=trace.reads_cache & (shift == number)))
            for number in np.unique(shift)
        ]
    else:
        parts = [(0, with_tails(trace, tails))]
    curves = [
        (
            number + rules.num_reserved_blocks,
            replay_lru(
                part,
                namespaces,
                capacity_blocks=None,
                min_recomputed_tokens=rules.min_recomputed_tokens,
                flops_by_depth=flops_by_depth,
                with_donors=False,
            )[0],
        )
        for number, part in parts
    ]
    length = max((shift + len(curve.num_cached_blocks) for shift, curve in curves), default=1)
    blocks = np.zeros(length, dtype=np.int64)
    flops = np.zeros(0 if flops_by_depth is None else length, dtype=np.float64)
    for number, curve in curves:
        _add_shifted(blocks, curve.num_cached_blocks, number)
        if len(flops):
            _add_shifted(flops, curve.flops_saved, number)
    return HitCurve(num_cached_blocks=blocks, flops_saved=flops)


def _add_shifted(
    total: Int64Array | Float64Array, curve: Int64Array | Float64Array, shift: int
) -> None:
    """Add a curve that begins `shift` capacities later and stays at its end."""
    total[shift : shift + len(curve)] += curve
    total[shift + len(curve) :] += curve[-1]
