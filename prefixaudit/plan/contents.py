"""What a log touches and shares: working set over the day, largest prefixes, who needs the room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.plan import kernels
from prefixaudit.pool.lru import prepare

_FEW_REQUESTS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Distinct blocks that windows of `window_s` seconds touch, from the log's first arrival on."""

    window_s: float
    num_blocks: tuple[int, ...]
    num_requests: tuple[int, ...]

    @property
    def peak_blocks(self) -> int:
        return max(self.num_blocks, default=0)

    @property
    def mean_blocks(self) -> float:
        """Return the mean over windows with a request; 0 without one."""
        busy = [b for b, n in zip(self.num_blocks, self.num_requests, strict=True) if n]
        return sum(busy) / len(busy) if busy else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """A beginning that requests share, up to where they part.

    hash             the label of its last block: half a digest, or a trace's own id; never text
    num_requests     requests that begin with it
    num_own_blocks   blocks from the junction before it to its end: what it holds of the pool
    num_below_blocks distinct blocks that continue it
    num_saved_tokens tokens of its own blocks that all but the first request need not compute, if
                     the pool keeps them
    """

    hash: str
    num_tokens: int
    num_requests: int
    num_own_blocks: int
    num_below_blocks: int
    num_saved_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A group of requests and its token hit rates (0..1) in this pool and in half of it."""

    group: str
    num_requests: int
    hit_rate: float
    hit_rate_in_half: float

    @property
    def loss(self) -> float:
        return self.hit_rate - self.hit_rate_in_half


def working_set(trace: BlockTrace, namespaces: Int32Array, window_s: float) -> WorkingSet | None:
    """Return the blocks touched in each window; None where an arrival isn't known."""
    if not trace.num_requests or np.isnan(trace.arrival_s).any():
        return None
    replay = prepare(trace, namespaces, 0, None)
    window = ((trace.arrival_s - trace.arrival_s.min()) // window_s).astype(np.int64)
    number = int(window.max()) + 1
    if number > 1_000_000:
        return None
    blocks = np.zeros(number, dtype=np.int64)
    replay.kernel(kernels.touched_blocks)(
        replay.order,
        replay.ends,
        replay.parent,
        replay.size,
        window,
        np.full(len(replay.parent), -1, dtype=np.int64),
        blocks,
    )
    return WorkingSet(
        window_s=window_s,
        num_blocks=tuple(blocks.tolist()),
        num_requests=tuple(np.bincount(window, minlength=number).tolist()),
    )


def passes(trace: BlockTrace) -> Int64Array:
    """Return how many requests pass each node of the tree (int64 [nodes])."""
    found = np.zeros(len(trace.tree.parent), dtype=np.int64)
    np.add.at(found, trace.node[trace.node >= 0], 1)
    kernels.add_up(trace.tree.parent, found)
    return found


def largest_prefixes(trace: BlockTrace, limit: int = 10) -> tuple[SharedPrefix, ...]:
    """Return the runs that save most tokens when kept, the most first."""
    tree = trace.tree
    number = passes(trace)
    below = tree.num_blocks.astype(np.int64)
    kernels.add_up(tree.parent, below)
    below -= tree.num_blocks
    saved = tree.num_blocks * (number - 1) * trace.block_size
    order = np.argsort(-saved, kind="stable")[:limit]
    return tuple(
        SharedPrefix(
            hash=_label(trace, node),
            num_tokens=int(tree.depth_blocks[node] + tree.num_blocks[node]) * trace.block_size,
            num_requests=int(number[node]),
            num_own_blocks=int(tree.num_blocks[node]),
            num_below_blocks=int(below[node]),
            num_saved_tokens=int(saved[node]),
        )
        for node in order.tolist()
        if saved[node] > 0
    )


def _label(trace: BlockTrace, node: int) -> str:
    last = int(trace.tree.first_block[node]) + int(trace.tree.num_blocks[node]) - 1
    digest, rest = trace.tree.labels[last].tolist()
    return str(digest) if rest == 0 else trace.tree.labels[last].astype("<u8").tobytes().hex()


def losers(
    trace: BlockTrace, cached: Int64Array, cached_in_half: Int64Array, limit: int = 8
) -> tuple[Loser, ...]:
    """Return the groups that lose most from half the pool, most points first.

    Groups are the tenants where they are known, and the prompts by length (quarters of the log by
    number of tokens). `cached` are tokens of each request (int64 [requests]) in the two pools.
    """
    groups: list[tuple[str, NDArray[np.bool_]]] = []
    tenants: dict[str, list[int]] = {}
    for number, identity in enumerate(trace.identities):
        if identity.tenant is not UNKNOWN and identity.tenant is not None:
            tenants.setdefault(identity.tenant, []).append(number)
    if len(tenants) > 1:
        groups += [
            (f"tenant {tenant}", np.isin(trace.identity, numbers))
            for tenant, numbers in tenants.items()
        ]
    tokens = trace.num_prompt_tokens
    if trace.num_requests >= _FEW_REQUESTS:
        edges = np.unique(np.quantile(tokens, (0.0, 0.25, 0.5, 0.75, 1.0)).astype(np.int64))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            is_last = high == int(edges[-1])
            inside = (tokens >= low) & ((tokens <= high) if is_last else (tokens < high))
            last = high if is_last else high - 1
            groups.append((f"prompts of {low:,} to {last:,} tokens", inside))
    found = []
    for name, inside in groups:
        total = int(tokens[inside].sum())
        if total:
            found.append(
                Loser(
                    group=name,
                    num_requests=int(inside.sum()),
                    hit_rate=int(cached[inside].sum()) / total,
                    hit_rate_in_half=int(cached_in_half[inside].sum()) / total,
                )
            )
    return tuple(sorted(found, key=lambda loser: -loser.loss)[:limit])
