"""Replays every tier of a deployment: under the key that it really has, and under the complete one.

A local pool sees the requests of its own server; a shared store, those of all its servers in order
of time, each as if it asked the store for its whole prompt; a router's index, those of each worker
apart. Servers of unknown name share one pool. What empties a pool splits the log: nothing from
before is a donor after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.hash_roots import root_of
from prefixaudit.audit.identities import table_of
from prefixaudit.audit.keys import (
    content_numbers,
    isolation_numbers,
    keys_adapter_number,
    written_key,
)
from prefixaudit.audit.media import media_form_of
from prefixaudit.audit.public import public_nodes
from prefixaudit.audit.sharing import rows_of, sharing_of
from prefixaudit.core.audit import (
    AuditLog,
    AuditSubject,
    ServerFacts,
    Sharing,
    TierFacts,
    TierReplay,
)
from prefixaudit.core.engine import MEDIA
from prefixaudit.core.pool import HitCurve, Lookups
from prefixaudit.core.trace import BlockTrace, Float64Array, Int64Array
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.pool.lru import replay_lru
from prefixaudit.pool.separate import cut_first_blocks, numbered, separated

PoolReplay: TypeAlias = Callable[[BlockTrace], Lookups]
"""Replays a trace whose requests are all of one namespace; donors may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierKeys:
    """The namespaces of a tier's requests (int64 [requests] each).

    `first` and `rest` are of the key itself (`rest` refines `first`), with `apart`: what keeps
    requests apart beside the key, as the worker of a router, the times that a pool was emptied,
    and processes of other models. `ignored_fields` can't differ within one process here.
    """

    first: Int64Array
    rest: Int64Array
    apart: Int64Array
    ignored_fields: frozenset[str]


def replay_tiers(
    log: AuditLog, servers: Sequence[ServerFacts], tiers: Sequence[TierFacts]
) -> tuple[TierReplay, ...]:
    """Return the replay of each tier that the log can be read in the blocks of."""
    return tuple(replay_tier(log, servers, tier) for tier in tiers if can_replay(log, tier))


def can_replay(log: AuditLog, tier: TierFacts) -> bool:
    """Say whether the log can be read in a tier's blocks, and has requests."""
    trace = log.trace(tier.block_size, media_form_of(tier.tier))
    return trace is not None and trace.num_requests > 0


def trace_for(log: AuditLog, tier: TierFacts) -> BlockTrace:
    """Return the trace in a tier's blocks, with media as its key has them."""
    trace = log.trace(tier.block_size, media_form_of(tier.tier))
    assert trace is not None, "the caller asked can_replay"
    return trace


def replay_tier(
    log: AuditLog,
    servers: Sequence[ServerFacts],
    tier: TierFacts,
    *,
    keys: TierKeys | None = None,
    own: tuple[HitCurve, Lookups] | None = None,
    pool: PoolReplay | None = None,
) -> TierReplay:
    """Replay one tier.

    `own` are its curve and lookups where they are known, `keys` its keys, and `pool` what replays
    a separated trace in it; by default LRU.
    """
    trace = trace_for(log, tier)
    keys = tier_keys(log, trace, servers, tier) if keys is None else keys
    with_media = log.trace(tier.block_size)
    assert with_media is not None, "each size has a trace with media"
    members = pool_members(log, servers, tier)
    curve, lookups = _pooled(separate_by_key(trace, keys), tier, members) if own is None else own
    if trace is with_media and is_complete(trace, keys):
        safe_lookups = lookups
    elif pool is None:
        safely = separate_safely(log, with_media, keys)
        _, safe_lookups = _pooled(safely, tier, members, with_donors=False)
    else:
        safe_lookups = pool(separate_safely(log, with_media, keys))
    return TierReplay(
        tier=tier,
        log=log,
        trace=trace,
        lookups=lookups,
        safe_lookups=safe_lookups,
        sharing=_sharing(log, trace, servers, tier, lookups),
        curve=curve,
    )


def sharing_with(
    replay: TierReplay, servers: Sequence[ServerFacts], fields: Sequence[str]
) -> Sharing:
    """Return who would share with whom if identity fields (or `media`) were added to a tier's key.

    Fields are added to every block, as their values.
    """
    log, tier = replay.log, replay.tier
    trace = replay.trace
    if MEDIA in fields:
        with_media = log.trace(tier.block_size)
        assert with_media is not None, "each size has a trace with media"
        trace = with_media
    keys = tier_keys(log, trace, servers, tier)
    first, rest = keys.first, keys.rest
    for name in fields:
        if name != MEDIA:
            codes = table_of(trace.identities).codes(name)[trace.identity]
            first = numbered(first, codes)
    keys = replace(keys, first=first, rest=numbered(first, rest))
    members = pool_members(log, servers, tier)
    _, lookups = _pooled(separate_by_key(trace, keys), tier, members)
    return _sharing(log, trace, servers, tier, lookups)


def safe_hits(
    log: AuditLog, servers: Sequence[ServerFacts], tier: TierFacts, *, capacity_blocks: int | None
) -> Int64Array:
    """Return the safely cached tokens of each request (int64) in a tier of another capacity."""
    keys = tier_keys(log, trace_for(log, tier), servers, tier)
    with_media = log.trace(tier.block_size)
    assert with_media is not None, "each size has a trace with media"
    _, lookups = _pooled(
        separate_safely(log, with_media, keys),
        replace(tier, capacity_blocks=capacity_blocks),
        pool_members(log, servers, tier),
        with_donors=False,
    )
    return lookups.num_cached_tokens


def _sharing(
    log: AuditLog,
    trace: BlockTrace,
    servers: Sequence[ServerFacts],
    tier: TierFacts,
    lookups: Lookups,
) -> Sharing:
    with_media = log.trace(tier.block_size)
    process = process_fields(tier)
    readers, _ = rows_of(lookups)
    donors = lookups.donors
    server = log.server
    is_same_process = (server[readers] == server[donors]) & (
        (server[readers] >= 0) | (len(servers) <= 1)
    )
    return sharing_of(
        trace,
        lookups,
        public_tokens=log.public_tokens,
        constant_fields=process - log.changed_fields,
        is_same_process=is_same_process,
        key_fields=frozenset(tier.tier.key_fields)
        - ({"lora_name"} if keys_adapter_number(tier.tier) else set()),
        media_trace=None if trace is with_media else with_media,
    )


def process_fields(tier: TierFacts) -> frozenset[str]:
    """Return the fields that can't differ within one process of the tier's engine."""
    own = tier.profile.process_fields or tier.tier.process_fields
    return frozenset(own or _OF_A_PROCESS)


# Where an engine's profile doesn't say: what is fixed when a process starts.
_OF_A_PROCESS = (
    "model",
    "model_revision",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "kv_scales",
    "position_encoding",
    "attention",
)


def tier_keys(
    log: AuditLog, trace: BlockTrace, servers: Sequence[ServerFacts], tier: TierFacts
) -> TierKeys:
    """Return the namespaces that a tier's key gives the log's requests."""
    written = written_key(tier.tier, trace.identities)
    is_store = tier.tier.kind == "external-store"
    apart = (log.store_epoch if is_store else log.epoch).astype(np.int64)
    ignored: frozenset[str] = frozenset()
    if tier.tier.kind == "local-pool":
        # One process has one model: requests of two models are of two processes, named or not.
        process = process_fields(tier) - log.changed_fields
        differing = [name for name in sorted(process) if _num_known(trace, name) > 1]
        for name in differing:
            apart = numbered(apart, table_of(trace.identities).codes(name)[trace.identity])
        ignored = process - set(differing)
    elif tier.tier.kind == "router-index":
        apart = numbered(apart, log.server)
    elif len(servers) > 1:
        apart = numbered(apart, hash_groups(servers, tier)[log.server])
    first = numbered(written.first[trace.identity], apart)
    return TierKeys(
        first=first,
        rest=numbered(first, written.rest[trace.identity]),
        apart=apart,
        ignored_fields=ignored,
    )


def hash_groups(servers: Sequence[ServerFacts], tier: TierFacts) -> Int64Array:
    """Number servers (int64) by the root of their hashes: of two numbers, no hash is ever equal.

    The last entry stands for requests of an unknown server. A root that isn't known may be any: it
    is taken for the one that most servers have.
    """
    subject = AuditSubject(servers=tuple(servers), tiers=(tier,))
    roots = [root_of(server, tier, subject) for server in servers]
    known = Counter(root for root in roots if root is not UNKNOWN)
    usual = known.most_common(1)[0][0] if known else UNKNOWN
    filled = [usual if root is UNKNOWN else root for root in (*roots, UNKNOWN)]
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(root, len(numbers)) for root in filled], dtype=np.int64)


def _num_known(trace: BlockTrace, name: str) -> int:
    codes = table_of(trace.identities).codes(name)
    return len(np.unique(codes[codes >= 0]))


def separate_by_key(trace: BlockTrace, keys: TierKeys) -> BlockTrace:
    """Return the trace in which requests share what a tier's key says is the same."""
    if (numbered(keys.first) == numbered(keys.rest)).all():
        return separated(trace, np.zeros(len(trace.tree.parent), dtype=np.int64), [keys.rest])[0]
    cut = cut_first_blocks(trace)
    behind = (cut.tree.depth_blocks > 0).astype(np.int64)
    return separated(cut, behind, [keys.first, keys.rest])[0]


def separate_safely(log: AuditLog, trace: BlockTrace, keys: TierKeys) -> BlockTrace:
    """Return the trace in which requests share only what may be shared under the complete identity.

    The tier's own key is refined by all that changes the KV, and, outside of public prefixes, by
    who may observe the reuse.
    """
    public, private = _complete_namespaces(trace, keys)
    cut, is_public = public_nodes(trace, log.public_tokens)
    return separated(cut, (~is_public).astype(np.int64), [public, private])[0]


def is_complete(trace: BlockTrace, keys: TierKeys) -> bool:
    """Say whether a key keeps apart all that the complete identity does, in this log."""
    complete = _complete_namespaces(trace, keys)[1]
    # Numbers of equal partitions are equal, since each column refines the one before.
    return bool((complete == numbered(keys.rest)).all() and (complete == keys.first).all())


def _complete_namespaces(trace: BlockTrace, keys: TierKeys) -> tuple[Int64Array, Int64Array]:
    """Return the namespaces (int64 [requests]) inside and outside of public prefixes."""
    content = content_numbers(trace.identities, keys.ignored_fields)[trace.identity]
    isolation = isolation_numbers(trace.identities)[trace.identity]
    public = numbered(keys.rest, content)
    return public, numbered(public, isolation)


def pool_members(
    log: AuditLog, servers: Sequence[ServerFacts], tier: TierFacts
) -> tuple[Int64Array, ...]:
    """Return the positions of the requests that each pool of the tier sees, pool by pool."""
    names = [server.name for server in servers]
    numbers = [names.index(name) for name in tier.servers if name in names]
    is_seen = np.isin(log.server, numbers) | (log.server < 0)
    if not numbers or len(names) <= 1:
        is_seen = np.ones(len(log.server), dtype=np.bool_)
    if tier.tier.kind != "local-pool":
        return (np.flatnonzero(is_seen),)
    pools = [np.flatnonzero(is_seen & (log.server == n)) for n in np.unique(log.server[is_seen])]
    return tuple(pools)


def _pooled(
    trace: BlockTrace,
    tier: TierFacts,
    members: tuple[Int64Array, ...],
    *,
    with_donors: bool = True,
) -> tuple[HitCurve, Lookups]:
    """Replay each pool apart; lookups in the trace's order, and the sum of the curves."""
    same = np.zeros(trace.num_requests, dtype=np.int32)
    whole = len(members) == 1 and len(members[0]) == trace.num_requests

    def replay(part: BlockTrace) -> tuple[HitCurve, Lookups]:
        return replay_lru(
            part,
            same[: part.num_requests],
            capacity_blocks=tier.capacity_blocks,
            min_recomputed_tokens=tier.profile.min_recomputed_tokens,
            flops_by_depth=None,
            with_donors=with_donors,
        )

    if whole:
        return replay(trace)
    results = [replay(trace.of_requests(positions)) for positions in members]
    curve = _sum_of_curves([result[0] for result in results])
    return curve, _merged(trace.num_requests, members, [result[1] for result in results])


def _sum_of_curves(curves: Sequence[HitCurve]) -> HitCurve:
    longest = max((len(curve.num_cached_blocks) for curve in curves), default=1)
    total = np.zeros(longest, dtype=np.int64)
    for curve in curves:
        blocks = curve.num_cached_blocks
        total[: len(blocks)] += blocks
        total[len(blocks) :] += blocks[-1] if len(blocks) else 0
    no_flops: Float64Array = np.empty(0, dtype=np.float64)
    return HitCurve(num_cached_blocks=total, flops_saved=no_flops)


def _merged(num_requests: int, members: Sequence[Int64Array], parts: Sequence[Lookups]) -> Lookups:
    cached = np.zeros(num_requests, dtype=np.int64)
    counts = np.zeros(num_requests, dtype=np.int64)
    readers: list[NDArray[np.int64]] = []
    donors: list[NDArray[np.int32]] = []
    tokens: list[NDArray[np.int64]] = []
    for positions, part in zip(members, parts, strict=True):
        cached[positions] = part.num_cached_tokens
        counts[positions] = np.diff(part.donor_offsets)
        readers.append(np.repeat(positions, np.diff(part.donor_offsets)))
        donors.append(positions[part.donors].astype(np.int32))
        tokens.append(part.donor_num_tokens)
    order = np.argsort(np.concatenate([*readers, np.empty(0, dtype=np.int64)]), kind="stable")
    offsets = np.zeros(num_requests + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return Lookups(
        num_cached_tokens=cached,
        donor_offsets=offsets,
        donors=np.concatenate([*donors, np.empty(0, dtype=np.int32)])[order],
        donor_num_tokens=np.concatenate([*tokens, np.empty(0, dtype=np.int64)])[order],
    )
