"""Simulates the pool: this deployment's, an endless one, and the curve over all capacities.

Without an engine, or with one whose pool is plain LRU, one pass gives the exact hits at every
capacity; the tail of a prompt that fills no block takes one all the same. Capacities count the
blocks that can hold KV, reserved ones (vLLM's null block) left out.

vLLM's block pool is simulated as it is at this deployment's capacity; its curve is one pass where
that is exact, else a set of capacities is simulated. SGLang's radix tree likewise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.pool import HitCurve, HitRates, Lookups
from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.errors import UsageError
from prefixaudit.pool import hit_rates_at, informative_capacities, replay_lru, replay_lru_at

# Capacities that are simulated one by one where one pass isn't exact, and the block accesses (or,
# for radix trees, requests) that this may cost.
_NUM_POINTS: Final = 24
_MOST_ACCESSES: Final = 40_000_000
_MOST_TREE_REQUESTS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Hits of this pool and of an endless one.

    curve   hits at every capacity by one pass
    capacities  sizes of the pool that show the curve's shape, ascending
    points  Lookups at those of them that were simulated one by one: one pass isn't exact there
    about   which pool was simulated and how, for the report
    """

    curve: HitCurve
    capacities: tuple[int, ...]
    points: dict[int, Lookups]
    lookups: Lookups
    rates: HitRates
    endless_lookups: Lookups
    endless_rates: HitRates
    about: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """One way to simulate: its curve, Lookups at a capacity, and what is said of it."""

    curve: HitCurve
    capacities: tuple[int, ...]
    at: Callable[[int], Lookups] | None
    points: dict[int, Lookups]
    about: str
    notes: tuple[str, ...]


def simulate(
    trace: BlockTrace,
    fields: tuple[str, ...],
    *,
    engine: EngineProfile | None,
    policy: str | None,
    capacity_blocks: int | None,
    flops_by_depth: Float64Array | None,
) -> Simulated:
    """Return the hits of a trace; blocks are kept apart by the identity `fields`.

    Fields that are in the engine's key count as the key writes them: where it joins two of them,
    other values may be equal there.

    `policy` is a radix tree's eviction policy, None for the engine's default. Raises UsageError for
    a policy that the engine doesn't have.
    """
    namespaces = key_namespaces(trace, fields, engine)
    order = trace.replay_order()
    min_recomputed = 1 if engine is None else engine.min_recomputed_tokens
    # One pass serves both pools where they are one, or where this pool is plain LRU.
    is_plain = engine is None or engine.pool is None or engine.pool.eviction_regime == "lru"
    pool_trace = with_slots(trace)
    curve, found = replay_lru_at(
        pool_trace,
        namespaces,
        [capacity_blocks, None] if is_plain and capacity_blocks is not None else [None],
        min_recomputed_tokens=min_recomputed,
        flops_by_depth=flops_by_depth,
        order=order,
    )
    lookups, endless = found[0], found[-1]
    if len(found) > 1 and pool_trace is not trace:
        _, endless = replay_lru(
            trace,
            namespaces,
            capacity_blocks=None,
            min_recomputed_tokens=min_recomputed,
            flops_by_depth=None,
            order=order,
            with_donors=False,
        )
    pool = _pool_of(engine, policy, trace, namespaces, curve, capacity_blocks, flops_by_depth)
    if pool.at is not None and capacity_blocks is not None:
        lookups = pool.at(capacity_blocks)

    hits: list[tuple[int | None, Int64Array]] = [(None, endless.num_cached_tokens)]
    if capacity_blocks is not None:
        hits.insert(0, (capacity_blocks, lookups.num_cached_tokens))
    rates = hit_rates_at(trace, namespaces, hits, order=order)
    return Simulated(
        curve=pool.curve,
        capacities=pool.capacities,
        points=pool.points,
        lookups=lookups,
        rates=rates[0],
        endless_lookups=endless,
        endless_rates=rates[-1],
        about=pool.about,
        notes=pool.notes,
    )


def key_namespaces(
    trace: BlockTrace, fields: tuple[str, ...], engine: EngineProfile | None
) -> Int32Array:
    """Number requests (int32): equal numbers are equal keys of the identity `fields`.

    Where a key is ambiguous in a prompt's first block only, that block is kept apart all the same.
    """
    own = None if engine is None or not engine.tiers else engine.tiers[0]
    if own is None or own.kind != "local-pool":
        return trace.namespaces(fields)
    written = {part.field for part in own.key} & set(fields)
    if not written:
        return trace.namespaces(fields)
    from prefixaudit.audit.keys import written_key
    from prefixaudit.pool.separate import numbered

    others = tuple(name for name in fields if name not in written)
    rest = written_key(own, trace.identities).rest[trace.identity]
    return numbered(rest, trace.namespaces(others).astype(np.int64)).astype(np.int32)


def lookups_at(
    trace: BlockTrace,
    *,
    engine: EngineProfile | None,
    policy: str | None,
    capacity_blocks: int | None,
) -> Lookups:
    """Return the hits of a trace in the engine's pool of one capacity (None: endless), no donors.

    All requests are of one namespace. A radix tree's log of more than 20,000 requests is replayed
    in an LRU pool of blocks.
    """
    from prefixaudit.pool.explicit import simulate_pool
    from prefixaudit.pool.explicit_curve import block_pool_rules

    namespaces = trace.namespaces(())
    regime = "lru" if engine is None or engine.pool is None else engine.pool.eviction_regime
    if engine is not None and capacity_blocks is not None:
        if regime in ("all-to-back", "unhashed-to-front"):
            rules = block_pool_rules(engine)
            assert rules is not None, "these regimes have rules"
            rules = replace(rules, num_reserved_blocks=0)
            return simulate_pool(
                trace, namespaces, capacity_blocks=capacity_blocks, rules=rules
            ).lookups
        if regime == "leaves" and trace.num_requests <= _MOST_TREE_REQUESTS:
            return _tree_lookups(engine, policy, trace, namespaces, capacity_blocks)
    return replay_lru(
        trace if capacity_blocks is None else with_slots(trace),
        namespaces,
        capacity_blocks=capacity_blocks,
        min_recomputed_tokens=1 if engine is None else engine.min_recomputed_tokens,
        flops_by_depth=None,
        with_donors=False,
    )[1]


def _tree_lookups(
    engine: EngineProfile,
    policy: str | None,
    trace: BlockTrace,
    namespaces: Int32Array,
    capacity_blocks: int,
) -> Lookups:
    from prefixaudit.pool.sglang.rules import rules_of
    from prefixaudit.pool.sglang.sequential import replay_sequential

    assert engine.pool is not None, "the caller looked at the regime"
    return replay_sequential(
        trace,
        namespaces,
        capacity_tokens=capacity_blocks * trace.block_size,
        policy=policy or engine.pool.policies[0],
        rules=rules_of(engine.facts_version or ""),
    ).lookups


def with_slots(trace: BlockTrace) -> BlockTrace:
    """Return the trace with a block for each tail that fills none: it takes room and is never hit.

    Where a trace has an id for the tail, equal ids after equal blocks are one block.
    """
    from prefixaudit.chain.partial import with_partial_blocks
    from prefixaudit.pool.tails import num_slots, with_tails

    if trace.has_partial_id.any():
        with_ids = with_partial_blocks(trace)
        trace = replace(with_ids, num_prompt_tokens=trace.num_prompt_tokens)
    tails = num_slots(trace)[1] - trace.num_blocks
    return with_tails(trace, tails) if tails.any() else trace


def _pool_of(
    engine: EngineProfile | None,
    policy: str | None,
    trace: BlockTrace,
    namespaces: Int32Array,
    lru: HitCurve,
    capacity_blocks: int | None,
    flops_by_depth: Float64Array | None,
) -> _Pool:
    regime = "lru" if engine is None or engine.pool is None else engine.pool.eviction_regime
    always = () if capacity_blocks is None else (capacity_blocks,)
    if engine is not None and regime in ("all-to-back", "unhashed-to-front"):
        return _block_pool(engine, trace, namespaces, always, flops_by_depth)
    if engine is not None and regime == "leaves":
        return _radix_tree(engine, policy, trace, namespaces, lru, always)
    notes: tuple[str, ...] = ()
    if regime not in ("lru", "leaves"):
        notes = (f"how {_name(engine)} evicts isn't modelled: its pool is taken as plain LRU",)
    return _Pool(
        curve=lru,
        capacities=informative_capacities(lru, always=always),
        at=None,
        points={},
        about="LRU, a prompt's unfilled tail takes a block too; exact at every pool size",
        notes=notes,
    )


def _block_pool(
    engine: EngineProfile,
    trace: BlockTrace,
    namespaces: Int32Array,
    always: Sequence[int],
    flops_by_depth: Float64Array | None,
) -> _Pool:
    from prefixaudit.pool.curves import capacity_for_share
    from prefixaudit.pool.explicit import simulate_pool, simulate_pool_at
    from prefixaudit.pool.explicit_curve import (
        block_pool_curve,
        block_pool_rules,
        exact_from_blocks,
        one_pass_is_exact,
        trace_facts,
    )

    rules = block_pool_rules(engine)
    assert rules is not None, "the caller looked at the regime"
    rules = replace(rules, num_reserved_blocks=0)
    curve = block_pool_curve(trace, namespaces, rules=rules, flops_by_depth=flops_by_depth)
    facts = trace_facts(trace, namespaces, rules)
    is_exact, reason = one_pass_is_exact(engine, facts)
    if is_exact:
        exact_from = exact_from_blocks(rules, facts)
        capacities = informative_capacities(curve, always=always)
        simulated = tuple(capacity for capacity in capacities if capacity < exact_from)
        how = f"curve by one pass, exact from {exact_from:,} blocks on (the largest request)"
    else:
        # Copies take room that the curve knows nothing of: all that can be hit needs more of it.
        end = capacity_for_share(curve, 1.0)
        more = (end * 9 // 8, end * 5 // 4, end * 3 // 2, end * 2)
        capacities = informative_capacities(curve, always=(*always, *more), num_points=_NUM_POINTS)
        simulated = capacities
        how = "curve"
    points: dict[int, Lookups] = {}
    if trace.num_block_accesses * len(simulated) <= _MOST_ACCESSES:
        pools = simulate_pool_at(
            trace,
            namespaces,
            capacities_blocks=simulated,
            rules=rules,
            jobs=min(os.cpu_count() or 1, 8),
        )
        points = {capacity: pool.lookups for capacity, pool in zip(simulated, pools, strict=True)}
        how += f", {len(points)} pool sizes simulated each for itself" if points else ""
    elif is_exact:
        how += ", approximate below"
    else:
        how += " by one pass, approximate: " + reason
    order = "front" if rules.unhashed_first else "back"
    return _Pool(
        curve=curve,
        capacities=capacities,
        at=lambda capacity: (
            simulate_pool(trace, namespaces, capacity_blocks=capacity, rules=rules).lookups
        ),
        points=points,
        about=(
            f"{_name(engine)} block pool: freed blocks without a hash go to the {order} of the "
            f"free queue; {how}"
        ),
        notes=(),
    )


def _radix_tree(
    engine: EngineProfile,
    policy: str | None,
    trace: BlockTrace,
    namespaces: Int32Array,
    lru: HitCurve,
    always: Sequence[int],
) -> _Pool:
    from prefixaudit.errors import unknown_name
    from prefixaudit.pool.sglang.rules import rules_of
    from prefixaudit.pool.sglang.sequential import replay_sequential

    assert engine.pool is not None, "the caller looked at the regime"
    policies = engine.pool.policies
    chosen = policy or policies[0]
    if chosen not in policies:
        raise UsageError(unknown_name(f"eviction policy of {_name(engine)}", chosen, policies))
    rules = rules_of(engine.facts_version or "")

    def at(capacity: int) -> Lookups:
        return replay_sequential(
            trace,
            namespaces,
            capacity_tokens=capacity * trace.block_size,
            policy=chosen,
            rules=rules,
        ).lookups

    capacities = informative_capacities(lru, always=always, num_points=_NUM_POINTS)
    points: dict[int, Lookups] = {}
    how = (
        "the curve is that of an LRU pool of blocks; a radix tree evicts whole leaves, so it "
        "differs somewhat"
    )
    if trace.num_requests * len(capacities) <= _MOST_TREE_REQUESTS:
        points = {capacity: at(capacity) for capacity in capacities}
        how = f"curve, {len(points)} pool sizes simulated each for itself"
    return _Pool(
        curve=lru,
        capacities=capacities,
        at=at,
        points=points,
        about=f"{_name(engine)} radix tree, policy {chosen}; {how}",
        notes=(),
    )


def _name(engine: EngineProfile | None) -> str:
    if engine is None:
        return "the engine"
    version = engine.facts_version
    return engine.name if version is None else f"{engine.name} {version}"
