"""From a BlockTrace to figures: hits, lengths, the curve, and what isn't known.

Definitions of rates are those of `core.pool.HitRates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from prefixaudit.core.identity import IDENTITY_FIELDS, Identity, field_kind
from prefixaudit.core.pool import HitCurve, HitRates
from prefixaudit.core.report import (
    CurveMark,
    CurvePoint,
    HitLength,
    Hits,
    UnknownField,
)
from prefixaudit.core.trace import BlockTrace, Float64Array, Int64Array
from prefixaudit.core.unknown import UNKNOWN

if TYPE_CHECKING:
    from prefixaudit.core.model import ModelSpec

_ABOUT = {
    name: str(Identity.__dataclass_fields__[name].metadata["about"]) for name in IDENTITY_FIELDS
}


def known_or_none(value: float) -> float | None:
    """Return None for NaN (nothing to divide by)."""
    return None if isnan(value) else float(value)


def prefill_per_request(spec: ModelSpec, num_prompt_tokens: Int64Array) -> Float64Array:
    """Return float64 [requests]: FLOPs to prefill each prompt without a cache."""
    from prefixaudit.cost.flops import prefill_flops

    components = prefill_flops(
        spec, np.maximum(num_prompt_tokens, 1), np.zeros_like(num_prompt_tokens)
    )
    total = np.zeros(len(num_prompt_tokens), dtype=np.float64)
    for part in components.values():
        total += part
    return np.where(num_prompt_tokens > 0, total, 0.0)


def pool_hits(
    rates: HitRates,
    num_cached_tokens: int,
    *,
    num_full_blocks: int,
    block_size: int,
    flops_saved: float | None,
    prefill_flops: float | None,
    by_ids: bool,
) -> Hits:
    """Return the figures of one pool size; `by_ids` for logs of block ids (core.report.Hits)."""
    share = None
    if flops_saved is not None and prefill_flops:
        share = flops_saved / prefill_flops
    return Hits(
        num_cached_tokens=num_cached_tokens,
        token_hit_rate=known_or_none(rates.of_tokens),
        request_hit_rate=known_or_none(rates.of_requests_by_ids if by_ids else rates.of_requests),
        block_hit_rate=num_cached_tokens // block_size / num_full_blocks
        if num_full_blocks
        else None,
        mean_request_hit_rate=known_or_none(rates.mean_over_requests),
        second_half_token_hit_rate=known_or_none(rates.of_tokens_last_half),
        prefill_flops_saved=flops_saved,
        flops_saved_share=share,
    )


def hit_lengths(num_cached_tokens: Int64Array, block_size: int) -> HitLength | None:
    """Return percentiles (nearest rank) and a histogram; None without requests."""
    if not len(num_cached_tokens):
        return None
    values = np.sort(num_cached_tokens)

    def percentile(percent: int) -> int:
        rank = -(-percent * len(values) // 100)
        return int(values[max(rank, 1) - 1])

    longest = int(values[-1])
    # None, then one block, four, sixteen …: wide enough to read and narrow enough to tell.
    starts = [0]
    edge = block_size
    while edge <= longest:
        starts.append(edge)
        edge *= 4
    places = np.searchsorted(values, [*starts, longest + 1])
    counts = np.diff(places)
    return HitLength(
        p50=percentile(50),
        p90=percentile(90),
        p99=percentile(99),
        max=longest,
        histogram=tuple((start, int(count)) for start, count in zip(starts, counts, strict=True)),
    )


def curve_points(
    curve: HitCurve,
    *,
    block_size: int,
    num_prompt_tokens: int,
    prefill_flops: float | None,
    block_bytes: int | None,
    capacity_blocks: int | None,
    capacities: Sequence[int],
    points: Mapping[int, tuple[int, float | None]],
) -> tuple[CurvePoint, ...]:
    """Return the curve at `capacities`, with its knee and this pool marked.

    `points`, (cached tokens, FLOPs saved) at some of them, replace the curve where given.
    """
    from prefixaudit.pool import find_knee
    from prefixaudit.pool.curves import capacity_for_share

    knee = find_knee(curve)
    endless = capacity_for_share(curve, 1.0)
    if endless in points:
        most = curve.at(None)[0] * block_size
        endless = min((size for size, (tokens, _) in points.items() if tokens == most), default=-1)
    found = []
    for capacity in capacities:
        num_blocks, by_curve = curve.at(capacity)
        num_tokens, flops = points.get(capacity, (num_blocks * block_size, known_or_none(by_curve)))
        marks: list[CurveMark] = []
        if capacity == capacity_blocks:
            marks.append("this-pool")
        if capacity == knee:
            marks.append("knee")
        if capacity == endless:
            marks.append("endless")
        found.append(
            CurvePoint(
                capacity_blocks=capacity,
                capacity_bytes=None if block_bytes is None else capacity * block_bytes,
                num_cached_tokens=num_tokens,
                token_hit_rate=num_tokens / num_prompt_tokens if num_prompt_tokens else None,
                flops_saved_share=flops / prefill_flops
                if prefill_flops and flops is not None
                else None,
                marks=tuple(marks),
            )
        )
    # Larger pools than one that hits all there is show nothing more.
    enough = next((p.capacity_blocks for p in found if "endless" in p.marks), None)
    last = max(enough or 0, capacity_blocks or 0)
    return tuple(point for point in found if enough is None or point.capacity_blocks <= last)


def unknown_fields(trace: BlockTrace) -> tuple[UnknownField, ...]:
    """Return the identity fields that some request doesn't have, the least covered first."""
    counts = np.bincount(trace.identity, minlength=len(trace.identities))
    found = []
    for name in IDENTITY_FIELDS:
        num_requests = sum(
            int(count)
            for identity, count in zip(trace.identities, counts, strict=True)
            if getattr(identity, name) is UNKNOWN
        )
        if num_requests:
            found.append(
                UnknownField(
                    field=name, kind=field_kind(name), about=_ABOUT[name], num_requests=num_requests
                )
            )
    return tuple(sorted(found, key=lambda field: -field.num_requests))


def num_tenants(identities: Sequence[Identity]) -> int | None:
    """Return the number of known tenants, None where none is known."""
    tenants = {identity.tenant for identity in identities if isinstance(identity.tenant, str)}
    return len(tenants) or None
