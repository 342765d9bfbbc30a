"""The waterfall: every prompt token in exactly one place, in tokens and in FLOPs.

A prompt is cut at rising edges, from its front:

    [0, hit)              reused, by the pool that was simulated
    [hit, endless)        evicted; or on another server, where several are told apart
    [endless, any key)    cached under another key
    [any key, prefix)     seen, but not in a full block: partial, or lost to block alignment
    [prefix, end)         unstable where it was seen behind another beginning, else new

Each edge is an exact figure of a simulation or of the prefix tree, made not to fall below the one
before; so the places add up whatever the figures are. FLOPs of a stretch are the difference of
those that a cache of its two ends would save (they depend on the position alone); what no cache
saves goes to the place of the last token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Float64Array, Int32Array, Int64Array
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.core.why import (
    PLACES,
    PlaceName,
    PlaceTotal,
    SeparatedBy,
    Shared,
    Waterfall,
    WaterfallGroup,
)
from prefixaudit.pool import hits_at, replay_lru

SavedFlops: TypeAlias = Callable[[Int64Array], Float64Array]
Dimension: TypeAlias = Literal["tenant", "model", "adapter", "endpoint", "hour"]

_NAMES: Final[tuple[PlaceName, ...]] = tuple(PLACES)
_ROW: Final = {name: row for row, name in enumerate(_NAMES)}
_IDENTITY_DIMENSIONS: Final[tuple[tuple[Dimension, str], ...]] = (
    ("tenant", "tenant"),
    ("model", "model"),
    ("adapter", "lora_name"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallInput:
    """What the waterfall is made of.

    hits, endless_hits  int64 [requests]  cached tokens of the simulated pool, and of an endless one
    key_fields       identity fields that keep blocks apart
    min_recomputed_tokens  tokens of a prompt that no hit covers
    fine_block_size  block size before a hybrid model's groups made it larger; None: it is as it is
    shared           from pairing; None where the log has block ids
    has_pools_of_servers  `hits` and `endless_hits` are those of several servers' pools, each for
                     itself: what `key_fields` alone would share was on another replica
    endpoint         names and int32 [requests]
    saved_flops      FLOPs that c cached tokens save; None without a model
    prefill_flops    float64 [requests], None without a model
    """

    trace: BlockTrace
    hits: Int64Array
    endless_hits: Int64Array
    key_fields: tuple[str, ...]
    min_recomputed_tokens: int
    shared: Shared | None = None
    fine_block_size: int | None = None
    has_pools_of_servers: bool = False
    endpoint: tuple[tuple[str | None, ...], Int32Array] | None = None
    saved_flops: SavedFlops | None = None
    prefill_flops: Float64Array | None = None


def build_waterfall(given: WaterfallInput) -> Waterfall:
    """Return where every prompt token of the trace went."""
    trace = given.trace
    length = trace.num_prompt_tokens
    edges = _Edges(given)
    tokens = np.zeros((len(_NAMES), trace.num_requests), dtype=np.int64)
    flops: Float64Array | None = None
    saved = given.saved_flops
    if saved is not None and given.prefill_flops is not None:
        flops = np.zeros(tokens.shape, dtype=np.float64)
    start = np.zeros_like(length)
    last_row = np.full(trace.num_requests, _ROW["reused"], dtype=np.int64)
    for name, where, end in edges.stretches():
        row = _ROW[name]
        end = np.clip(end, start, length)
        end = end if where is None else np.where(where, end, start)
        size = end - start
        tokens[row] += size
        last_row[size > 0] = row
        if flops is not None and saved is not None:
            flops[row] += saved(end) - saved(start)
        start = end
    _add_rest(given, start, tokens, flops, last_row)
    if flops is not None and saved is not None and given.prefill_flops is not None:
        rest = given.prefill_flops - saved(length)
        np.add.at(flops, (last_row, np.arange(trace.num_requests)), np.where(length > 0, rest, 0))
    return Waterfall(
        num_prompt_tokens=int(length.sum()),
        prefill_flops=None if given.prefill_flops is None else float(given.prefill_flops.sum()),
        places=_totals(tokens, flops, None),
        groups=tuple(_groups(given, tokens, flops)),
        separated_by=edges.separated_by(tokens[_ROW["separated-by-key"]]),
        by_request=tokens,
        flops_by_request=flops,
        replicas_are_modelled=given.has_pools_of_servers,
    )


class _Edges:
    """The edges of every prompt, int64 [requests] each."""

    def __init__(self, given: WaterfallInput) -> None:
        self._given = given
        trace = given.trace
        everyone = np.zeros(trace.num_requests, dtype=np.int32)
        namespaces = trace.namespaces(given.key_fields)
        self._reads_all = bool(trace.reads_cache.all())
        reading = trace
        if not self._reads_all:
            reading = replace(trace, reads_cache=np.ones_like(trace.reads_cache))
        self.by_key = given.endless_hits
        if given.has_pools_of_servers or not self._reads_all:
            self.by_key = np.maximum(self.by_key, self._cached(reading, namespaces))
        self._donors: Lookups | None = None
        self.by_any_key = self.by_key
        if trace.num_requests and (namespaces != namespaces[0]).any():
            _, self._donors = replay_lru(
                reading,
                everyone,
                capacity_blocks=None,
                min_recomputed_tokens=given.min_recomputed_tokens,
                flops_by_depth=None,
            )
            self.by_any_key = self._donors.num_cached_tokens
        self.by_tokens = self._by_tokens(reading, everyone)

    def stretches(self) -> Iterator[tuple[PlaceName, NDArray[Any] | None, Int64Array]]:
        """Yield each place, the requests it is for (None: all), and where it ends."""
        given = self._given
        reads = given.trace.reads_cache
        yield "reused", None, given.hits
        yield "evicted", None, given.endless_hits
        if given.has_pools_of_servers:
            yield "other-replica", reads, self.by_key
        if not self._reads_all:
            yield "cache-not-read", ~reads, self.by_key
        yield "separated-by-key", None, self.by_any_key
        fine = given.fine_block_size
        seen = np.maximum(self.by_tokens, self.by_any_key)
        if fine is not None and fine < given.trace.block_size:
            most = np.maximum(given.trace.num_prompt_tokens - given.min_recomputed_tokens, 0)
            yield "block-alignment", None, np.minimum(seen, most) // fine * fine
        yield "partial-block", None, seen

    def separated_by(self, num_tokens: Int64Array) -> tuple[SeparatedBy, ...]:
        """Say which key fields differ from those of the request that had cached the tokens."""
        trace, donors = self._given.trace, self._donors
        if donors is None:
            return ()
        ends = np.cumsum(donors.donor_num_tokens)
        found: dict[tuple[str, ...], list[int]] = {}
        fields_of: dict[tuple[int, int], tuple[str, ...]] = {}
        for request in np.flatnonzero(num_tokens).tolist():
            first = int(donors.donor_offsets[request])
            before = int(ends[first - 1]) if first else 0
            at = before + max(int(self._given.hits[request]), int(self.by_key[request]))
            place = int(np.searchsorted(ends, at, side="right"))
            place = min(place, int(donors.donor_offsets[request + 1]) - 1)
            pair = int(trace.identity[request]), int(trace.identity[donors.donors[place]])
            if pair not in fields_of:
                ours, theirs = trace.identities[pair[0]], trace.identities[pair[1]]
                fields_of[pair] = tuple(
                    name
                    for name in self._given.key_fields
                    if getattr(ours, name) != getattr(theirs, name)
                )
            entry = found.setdefault(fields_of[pair], [0, 0])
            entry[0] += 1
            entry[1] += int(num_tokens[request])
        return tuple(
            SeparatedBy(fields=fields, num_requests=count, num_tokens=tokens)
            for fields, (count, tokens) in sorted(found.items(), key=lambda item: -item[1][1])
        )

    def _by_tokens(self, reading: BlockTrace, everyone: Int32Array) -> Int64Array:
        """Return how far a prompt was seen, block or not; for block ids: the last-token rule."""
        given = self._given
        block_size = given.trace.block_size
        rounded = block_size + max(0, given.min_recomputed_tokens - 1)
        if given.shared is None or (given.shared.prefix_tokens < 0).any():
            whole = self._cached(reading, everyone, min_recomputed=0)
            if given.shared is None:
                return np.minimum(whole, self.by_any_key + rounded)
            known = given.shared.prefix_tokens
            return np.minimum(np.where(known < 0, whole, known), self.by_any_key + rounded)
        # What lies further than a block behind the last hit wasn't there yet when the request came.
        return np.minimum(given.shared.prefix_tokens, self.by_any_key + rounded)

    def _cached(
        self, trace: BlockTrace, namespaces: Int32Array, *, min_recomputed: int | None = None
    ) -> Int64Array:
        """Return the tokens that an endless pool has of each request."""
        least = self._given.min_recomputed_tokens if min_recomputed is None else min_recomputed
        hits: Int64Array = hits_at(trace, namespaces, [None], min_recomputed_tokens=least)[0]
        return hits * trace.block_size


def _add_rest(
    given: WaterfallInput,
    start: Int64Array,
    tokens: Int64Array,
    flops: Float64Array | None,
    last_row: Int64Array,
) -> None:
    """Put what follows `start` into unstable runs and new text."""
    length = given.trace.num_prompt_tokens
    new, unstable = _ROW["new-text"], _ROW["unstable-prefix"]
    rest = length - start
    last_row[rest > 0] = new
    tokens[new] += rest
    saved = given.saved_flops
    if flops is not None and saved is not None:
        flops[new] += saved(length) - saved(start)
    if given.shared is None:
        return
    runs = given.shared.runs
    begin = np.maximum(runs.start, start[runs.request])
    end = np.maximum(np.minimum(runs.end, length[runs.request]), begin)
    size = np.zeros_like(length)
    np.add.at(size, runs.request, end - begin)
    tokens[new] -= size
    tokens[unstable] += size
    last_row[runs.request[(end == length[runs.request]) & (end > begin)]] = unstable
    if flops is not None and saved is not None:
        worth = np.zeros(len(length), dtype=np.float64)
        np.add.at(worth, runs.request, saved(end) - saved(begin))
        flops[new] -= worth
        flops[unstable] += worth


def _totals(
    tokens: Int64Array, flops: Float64Array | None, requests: NDArray[Any] | None
) -> tuple[PlaceTotal, ...]:
    chosen = slice(None) if requests is None else requests
    sums = tokens[:, chosen].sum(axis=1)
    costs = None if flops is None else flops[:, chosen].sum(axis=1)
    return tuple(
        PlaceTotal(
            name=name,
            num_tokens=int(sums[row]),
            flops=None if costs is None else float(costs[row]),
        )
        for row, name in enumerate(_NAMES)
    )


def _groups(
    given: WaterfallInput, tokens: Int64Array, flops: Float64Array | None
) -> Iterator[WaterfallGroup]:
    for dimension, values, codes in _dimensions(given):
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(values) + 1))
        groups = []
        for code, value in enumerate(values):
            members = order[bounds[code] : bounds[code + 1]]
            if len(members):
                groups.append(
                    WaterfallGroup(
                        dimension=dimension,
                        value=value,
                        num_requests=len(members),
                        places=_totals(tokens, flops, members),
                    )
                )
        if dimension != "hour":
            groups.sort(key=lambda group: -sum(place.num_tokens for place in group.places))
        yield from groups


def _dimensions(
    given: WaterfallInput,
) -> Iterator[tuple[Dimension, Sequence[str | None], Int64Array]]:
    """Yield the dimensions that anything is known of: their values, and each request's code."""
    trace = given.trace
    for dimension, field in _IDENTITY_DIMENSIONS:
        values: dict[str | None, int] = {}
        of_identity = [
            values.setdefault(_shown(getattr(identity, field)), len(values))
            for identity in trace.identities
        ]
        if any(value is not None for value in values):
            yield dimension, list(values), np.array(of_identity, dtype=np.int64)[trace.identity]
    if given.endpoint is not None and any(name is not None for name in given.endpoint[0]):
        yield "endpoint", given.endpoint[0], given.endpoint[1].astype(np.int64)
    arrival = trace.arrival_s
    # Traces count from 0: an hour of the first days of 1970 is no time of day, but an hour it is.
    known = ~np.isnan(arrival)
    if known.any():
        hours = np.where(known, np.floor_divide(np.where(known, arrival, 0), 3600), -1)
        distinct, codes = np.unique(hours.astype(np.int64), return_inverse=True)
        yield "hour", [_hour(int(hour)) for hour in distinct], codes.astype(np.int64)


def _shown(value: Known[str]) -> str | None:
    if value is UNKNOWN:
        return None
    return "" if value is None else value


def _hour(number: int) -> str | None:
    """Return the hour's start in UTC, None for requests without a time."""
    if number < 0:
        return None
    return datetime.fromtimestamp(number * 3600, UTC).strftime("%Y-%m-%dT%H:00Z")
