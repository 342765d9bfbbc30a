"""The definitions of a hit rate, told apart: one log has one of each, and they differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prefixaudit.chain.partial import with_partial_blocks
from prefixaudit.core.pool import HitRates
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.pool.lru import hits_at


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    total = int(whole.sum())
    return int(part.sum()) / total if total else float("nan")


def hit_rates(
    trace: BlockTrace,
    namespaces: Int32Array,
    num_cached_tokens: Int64Array,
    *,
    capacity_blocks: int | None,
    order: Int64Array | None = None,
    num_uncounted: int = 0,
) -> HitRates:
    """Return every definition of the hit rate at one capacity; see HitRates for what each means.

    `num_cached_tokens` (int64 [requests]) are the Lookups' at that capacity and in that order;
    the figures of ids are replayed here, with partial ids as blocks and without a last-token rule.
    The first `num_uncounted` requests (in `order` too) fill the pool and count in no rate.
    """
    [rates] = hit_rates_at(
        trace,
        namespaces,
        [(capacity_blocks, num_cached_tokens)],
        order=order,
        num_uncounted=num_uncounted,
    )
    return rates


def hit_rates_at(
    trace: BlockTrace,
    namespaces: Int32Array,
    hits: Sequence[tuple[int | None, Int64Array]],
    *,
    order: Int64Array | None = None,
    num_uncounted: int = 0,
) -> list[HitRates]:
    """Return what `hit_rates` does for several capacities, each with its cached tokens."""
    if order is None:
        order = trace.replay_order()
    ids = with_partial_blocks(trace)
    capacities = [capacity for capacity, _ in hits]
    matched = hits_at(ids, namespaces, capacities, min_recomputed_tokens=0, order=order)
    return [
        _rates(trace, ids, num_cached_tokens, of_ids, order, num_uncounted)
        for (_, num_cached_tokens), of_ids in zip(hits, matched, strict=True)
    ]


def _rates(
    trace: BlockTrace,
    ids: BlockTrace,
    num_cached_tokens: Int64Array,
    matched: Int64Array,
    order: Int64Array,
    num_uncounted: int,
) -> HitRates:
    num_ids = (ids.num_prompt_tokens // ids.block_size)[num_uncounted:]
    tokens = trace.num_prompt_tokens[num_uncounted:]
    matched = matched[num_uncounted:]
    num_cached_tokens = num_cached_tokens[num_uncounted:]
    order = order[num_uncounted:] - num_uncounted
    filled = tokens > 0
    late = order[len(order) // 2 :]
    return HitRates(
        of_tokens=_share(num_cached_tokens, tokens),
        of_ids=_share(matched, num_ids),
        mean_over_requests=float(np.mean(num_cached_tokens[filled] / tokens[filled]))
        if filled.any()
        else float("nan"),
        of_requests=float(np.mean(num_cached_tokens > 0)) if len(tokens) else float("nan"),
        of_requests_by_ids=float(np.mean(matched > 0)) if len(tokens) else float("nan"),
        of_tokens_last_half=_share(num_cached_tokens[late], tokens[late]),
        of_ids_last_half=_share(matched[late], num_ids[late]),
        num_matched_ids=int(matched.sum()),
        num_ids=int(num_ids.sum()),
    )
