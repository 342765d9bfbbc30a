"""The pool of an engine profile at chosen capacities: one call for every engine.

vLLM's block pool and SGLang's radix tree run explicitly; the reference is plain LRU, and so is
whatever no model is known for, which `describe_pool` then says.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int32Array
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.explicit import simulate_pool_at
from prefixaudit.pool.explicit_curve import block_pool_rules
from prefixaudit.pool.lru import replay_lru
from prefixaudit.pool.sglang.rules import SglangRules, rules_of
from prefixaudit.pool.sglang.sequential import replay_sequential

# Below this many block accesses a process of its own costs more than it saves.
_WORTH_A_PROCESS: Final = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePool:
    """An engine's pool at one capacity (None: endless), requests one after another.

    num_refused and num_cut_answers are 0 for plain LRU, which refuses nothing;
    num_evicted_blocks is None there, as it isn't counted.
    """

    capacity_blocks: int | None
    lookups: Lookups
    num_refused: int
    num_cut_answers: int
    num_evicted_blocks: int | None


def describe_pool(
    profile: EngineProfile | None, *, policy: str | None = None, use_eagle: bool = False
) -> str:
    """Say in one line which pool is run for a profile, and by which eviction regime."""
    if profile is None:
        return "plain LRU of full blocks"
    regime = None if profile.pool is None else profile.pool.eviction_regime
    rules = block_pool_rules(profile, use_eagle=use_eagle)
    if rules is not None:
        order = (
            "freed blocks without a hash are the first to be taken again, the others the last"
            if rules.unhashed_first
            else "all freed blocks queue behind the others, with a hash or without"
        )
        dropped = "; the last block of a hit is dropped" if rules.drops_last_block else ""
        return f"block pool, eviction regime '{regime}': {order}{dropped}"
    if regime == "leaves":
        name = _policy(profile, policy)
        amount = _tree_rules(profile).evicts
        return (
            f"radix tree, eviction regime 'leaves': whole unlocked leaves go by {name} "
            f"({POLICIES[name].title}), as many as make up the {amount}"
        )
    if regime == "lru":
        return "plain LRU of full blocks"
    return "plain LRU of full blocks: this engine's own eviction isn't modelled"


def simulate_engine(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    profile: EngineProfile | None,
    capacities_blocks: Sequence[int | None],
    policy: str | None = None,
    use_eagle: bool = False,
    with_donors: bool = True,
    jobs: int = 1,
) -> tuple[EnginePool, ...]:
    """Run the profile's pool at each capacity (blocks, reserved ones included; None: endless).

    `policy` is for radix trees (None: the engine's default). The results don't depend on `jobs`.
    Raises UsageError for an unknown policy.
    """
    regime = None if profile is None or profile.pool is None else profile.pool.eviction_regime
    rules = None if profile is None else block_pool_rules(profile, use_eagle=use_eagle)
    if rules is not None:
        return tuple(
            EnginePool(
                capacity_blocks=pool.capacity_blocks,
                lookups=pool.lookups,
                num_refused=pool.num_refused,
                num_cut_answers=pool.num_cut_answers,
                num_evicted_blocks=pool.num_evicted_blocks,
            )
            for pool in simulate_pool_at(
                trace,
                namespaces,
                capacities_blocks=capacities_blocks,
                rules=rules,
                with_donors=with_donors,
                jobs=jobs,
            )
        )
    if profile is not None and regime == "leaves":
        tree = _Tree(trace, namespaces, _tree_rules(profile), _policy(profile, policy))
        return tree.at_all(capacities_blocks, jobs)
    min_recomputed_tokens = 1 if profile is None else profile.min_recomputed_tokens
    return tuple(
        EnginePool(
            capacity_blocks=capacity,
            lookups=replay_lru(
                trace,
                namespaces,
                capacity_blocks=capacity,
                min_recomputed_tokens=min_recomputed_tokens,
                flops_by_depth=None,
                with_donors=with_donors,
            )[1],
            num_refused=0,
            num_cut_answers=0,
            num_evicted_blocks=None,
        )
        for capacity in capacities_blocks
    )


def _policy(profile: EngineProfile, policy: str | None) -> str:
    if policy is not None:
        return policy
    facts = profile.pool
    return facts.policies[0] if facts is not None and facts.policies else "lru"


def _tree_rules(profile: EngineProfile) -> SglangRules:
    """Return the rules of the profile's release; the newest one where none was asked for."""
    version = profile.facts_version or profile.profile_version
    assert version is not None, "a profile with a radix tree has versions"
    return rules_of(version)


@dataclass(frozen=True, slots=True)
class _Tree:
    """What a process needs to run SGLang's tree at one capacity."""

    trace: BlockTrace
    namespaces: Int32Array
    rules: SglangRules
    policy: str

    def at(self, capacity_blocks: int | None) -> EnginePool:
        size = self.trace.block_size
        replay = replay_sequential(
            self.trace,
            self.namespaces,
            capacity_tokens=None if capacity_blocks is None else capacity_blocks * size,
            policy=self.policy,
            rules=self.rules,
        )
        return EnginePool(
            capacity_blocks=capacity_blocks,
            lookups=replay.lookups,
            num_refused=replay.num_refused,
            num_cut_answers=replay.num_cut_answers,
            num_evicted_blocks=replay.num_evicted_tokens // size,
        )

    def at_all(self, capacities: Sequence[int | None], jobs: int) -> tuple[EnginePool, ...]:
        work = self.trace.num_block_accesses * len(capacities)
        if jobs == 1 or len(capacities) < 2 or work < _WORTH_A_PROCESS:
            return tuple(self.at(capacity) for capacity in capacities)
        # A forked process would inherit locks of the compiled loops' and tokenizers' threads.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            min(jobs, len(capacities)), context, initializer=_start, initargs=(self,)
        ) as executor:
            return tuple(executor.map(_run, capacities))


_trees: list[_Tree] = []


def _start(tree: _Tree) -> None:
    """Keep the trace in a new process: it's sent once, not with every capacity."""
    _trees[:] = [tree]


def _run(capacity_blocks: int | None) -> EnginePool:
    return _trees[0].at(capacity_blocks)
