"""A part of the log in place of all of it, with a bound on what that costs.

What is drawn is conversations, never requests: a request without its predecessors would miss what
they stored. A conversation's root is the first run of its prompts that less than 5 % of all
requests share; what stands before it (a system prompt) is common and stays whole. A pool of C
blocks is then one of common + (C - common) * (drawn blocks / blocks), as spatial sampling scales it
(SHARDS, Waldspurger et al. 2015).

What an endless pool hits is known of the whole log: one walk over it, without any order of
eviction. The sample says which share of that a pool of C blocks hits (a ratio estimate).

The bound is a delete-a-group jackknife over 20 groups of roots: each replicate draws 19 of 20 and
scales its own pool, so that the error of the scaling is in it too. It is 3.88
standard errors (99.9 % of Student's, 19 degrees of freedom: a few conversations dominate a log, so
that errors have long tails), the share that wasn't drawn taken into account, and never less than a
point: where the sample's pool is full of all it can hold, the replicates no longer differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.errors import UsageError
from prefixaudit.plan import kernels
from prefixaudit.plan.contents import passes
from prefixaudit.plan.mixing import mixed
from prefixaudit.pool.lru import prepare, replay_lru

_COMMON_SHARE: Final = 0.05
_NUM_GROUPS: Final = 20
_NUM_ERRORS: Final = 3.883
_LEAST_BOUND: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A part of a trace: the requests drawn (positions, ascending) and how its pools are scaled.

    roots            int64 [requests drawn]  number of each one's root
    endless_hit_rate token hit rate of an endless pool, of the whole log
    num_common_blocks  blocks that stay whole
    block_share      drawn blocks / blocks, common ones left out
    """

    trace: BlockTrace
    positions: Int64Array
    roots: Int64Array
    share: float
    endless_hit_rate: float
    num_common_blocks: int
    block_share: float

    def scaled(self, capacity_blocks: int) -> int:
        """Return the capacity of the drawn part's pool that stands for one of all."""
        common = self.num_common_blocks
        if capacity_blocks <= common:
            return capacity_blocks
        return common + max(1, round((capacity_blocks - common) * self.block_share))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRate:
    """A token hit rate from a sample, and what the whole log's may differ from it.

    `bound` is None where too few conversations were drawn to say.
    """

    capacity_blocks: int
    hit_rate: float
    bound: float | None


def sample_of(
    trace: BlockTrace,
    namespaces: Int32Array,
    share: float,
    *,
    min_recomputed_tokens: int = 1,
    seed: int = 1,
) -> Sample:
    """Return `share` (0 to 1) of the conversations. Raises UsageError for a share out of range."""
    if not 0 < share <= 1:
        raise UsageError(f"a sample of {share}; expected more than 0 and at most 1")
    tree = trace.tree
    number = passes(trace)
    is_common = number > _COMMON_SHARE * trace.num_requests
    root = _roots(trace, is_common)
    keys = np.where(root >= 0, _label_keys(trace, root), np.arange(trace.num_requests) + (1 << 40))
    drawn = _draw(keys.astype(np.uint64), seed) < share
    positions = np.flatnonzero(drawn)
    part = trace.of_requests(positions)
    common = int(tree.num_blocks[is_common].sum())
    in_part = _touched(part)
    is_own = ~is_common
    drawn_blocks = int(tree.num_blocks[in_part & is_own].sum())
    all_blocks = int(tree.num_blocks[is_own].sum())
    # Groups are drawn by another hash than the sample itself.
    groups = (_draw(keys[drawn].astype(np.uint64), seed + 1) * _NUM_GROUPS).astype(np.int64)
    return Sample(
        trace=part,
        positions=positions,
        roots=groups,
        share=share,
        endless_hit_rate=_endless_hit_rate(trace, namespaces, min_recomputed_tokens),
        num_common_blocks=common,
        block_share=drawn_blocks / all_blocks if all_blocks else 1.0,
    )


def sampled_rates(
    sample: Sample,
    namespaces: Int32Array,
    capacities_blocks: Sequence[int],
    *,
    min_recomputed_tokens: int = 1,
) -> tuple[SampledRate, ...]:
    """Return the hit rates of plain LRU pools of the whole log, from the sample, with bounds.

    `namespaces` (int32) are those of the requests drawn.
    """
    trace = sample.trace
    num_drawn = _own_blocks(trace, sample)
    rates = [
        _rates(
            trace, namespaces, sample, capacities_blocks, min_recomputed_tokens, sample.block_share
        )
    ]
    present = np.unique(sample.roots)
    for group in present.tolist():
        kept = np.flatnonzero(sample.roots != group)
        part = trace.of_requests(kept)
        share = sample.block_share * _own_blocks(part, sample) / num_drawn if num_drawn else 1.0
        rates.append(
            _rates(part, namespaces[kept], sample, capacities_blocks, min_recomputed_tokens, share)
        )
    replicates = np.array(rates[1:])
    number = len(replicates)
    bounds: list[float | None] = [None] * len(capacities_blocks)
    if sample.share >= 1:
        bounds = [0.0] * len(capacities_blocks)
    elif number == _NUM_GROUPS:
        spread = replicates - replicates.mean(axis=0)
        errors = np.sqrt((number - 1) / number * (spread**2).sum(axis=0) * (1 - sample.share))
        bounds = [max(_LEAST_BOUND, float(_NUM_ERRORS * error)) for error in errors]
    return tuple(
        SampledRate(capacity_blocks=capacity, hit_rate=float(rate), bound=bound)
        for capacity, rate, bound in zip(capacities_blocks, rates[0], bounds, strict=True)
    )


def _rates(
    trace: BlockTrace,
    namespaces: Int32Array,
    sample: Sample,
    capacities_blocks: Sequence[int],
    min_recomputed_tokens: int,
    block_share: float,
) -> Float64Array:
    curve, _ = replay_lru(
        trace,
        namespaces,
        capacity_blocks=None,
        min_recomputed_tokens=min_recomputed_tokens,
        flops_by_depth=None,
        with_donors=False,
    )
    scaled = replace(sample, block_share=block_share)
    hits = [curve.at(scaled.scaled(capacity))[0] for capacity in capacities_blocks]
    return np.array(hits) / max(curve.at(None)[0], 1) * sample.endless_hit_rate


def _endless_hit_rate(
    trace: BlockTrace, namespaces: Int32Array, min_recomputed_tokens: int
) -> float:
    tokens = int(trace.num_prompt_tokens.sum())
    replay = prepare(trace, namespaces, min_recomputed_tokens, None)
    hits = replay.kernel(kernels.endless_hits)(
        replay.order,
        replay.ends,
        replay.limits,
        replay.parent,
        replay.size,
        replay.depth,
        np.zeros(len(replay.parent), dtype=np.bool_),
        np.zeros(replay.most_levels + 1, dtype=np.int64),
    )
    return int(hits) * trace.block_size / tokens if tokens else 0.0


def _own_blocks(trace: BlockTrace, sample: Sample) -> int:
    """Return the distinct blocks that a part touches; the common ones are in all parts."""
    return int(trace.tree.num_blocks[_touched(trace)].sum()) - sample.num_common_blocks


def _touched(trace: BlockTrace) -> NDArray[np.bool_]:
    return np.asarray(passes(trace) > 0)


def _roots(trace: BlockTrace, is_common: NDArray[np.bool_]) -> Int64Array:
    """Return each request's first node that isn't common (int64), -1 where all of them are."""
    parent = trace.tree.parent
    # The topmost node of each node's path that isn't common, parents first.
    top = np.full(len(parent), -1, dtype=np.int64)
    depth = trace.tree.depth_blocks
    for nodes in _levels(depth):
        above = np.where(parent[nodes] < 0, -1, top[np.maximum(parent[nodes], 0)])
        top[nodes] = np.where(above >= 0, above, np.where(is_common[nodes], -1, nodes))
    node = trace.node.astype(np.int64)
    return np.where(node < 0, -1, top[np.maximum(node, 0)]) if len(top) else node


def _levels(depth: NDArray[Any]) -> list[Int64Array]:
    order = np.argsort(depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[order])) + 1
    return list(np.split(order, bounds)) if len(order) else []


def _label_keys(trace: BlockTrace, root: Int64Array) -> NDArray[np.uint64]:
    """Return what names a root whatever else the log holds: the label of its first block."""
    if not len(trace.tree.labels):
        return np.zeros(len(root), dtype=np.uint64)
    labels = trace.tree.labels[trace.tree.first_block[np.maximum(root, 0)]]
    return mixed(labels[:, 0].astype(np.uint64) ^ mixed(labels[:, 1].astype(np.uint64)))


def _draw(keys: NDArray[np.uint64], seed: int) -> Float64Array:
    """Return a number in 0..1 for each key, the same for equal keys."""
    spread = mixed(keys ^ mixed(np.full(1, seed, dtype=np.uint64)))
    return (spread >> np.uint64(11)).astype(np.float64) / float(1 << 53)
