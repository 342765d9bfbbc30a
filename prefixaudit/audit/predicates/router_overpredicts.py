"""A router expects reuse that the engine's key doesn't allow.

The router's index lacks a field that the engine's own pool keys, so it takes blocks of another
identity for the request's own. Nothing leaks; requests are sent to a worker for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prefixaudit.audit.predicates._rows import evidence_of, fields_of, indices, mask_of
from prefixaudit.core.audit import AuditSubject, TierReplay
from prefixaudit.core.finding import Observation
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    pools = [replay for replay in subject.replays if replay.tier.tier.kind == "local-pool"]
    for router in subject.replays:
        if router.tier.tier.kind == "router-index" and pools:
            yield from _of_router(router, pools, set(params.get("fields", IDENTITY_FIELDS)))


def _of_router(
    router: TierReplay, pools: list[TierReplay], wanted: set[str]
) -> Iterator[Observation]:
    sharing = router.sharing
    if not len(sharing.reader):
        return
    # Each request has hits in the pool of its own server only.
    hits = np.sum([pool.lookups.num_cached_tokens for pool in pools], axis=0)
    keyed = {name for pool in pools for name in pool.tier.tier.key_fields}
    lacking = (keyed - set(router.tier.tier.key_fields)) & wanted
    mask = np.uint32(mask_of(lacking))
    expected = sharing.start_token + sharing.num_tokens
    misled = (sharing.differing & mask) != 0
    misled &= expected > hits[sharing.reader]
    rows = np.flatnonzero(misled)
    if not len(rows):
        return
    readers = np.unique(sharing.reader[rows])
    fields = fields_of(int(np.bitwise_or.reduce(sharing.differing[rows]) & mask))
    predicted = router.lookups.num_cached_tokens[readers]
    num_lost = int(np.maximum(0, predicted - hits[readers]).sum())
    pairs = evidence_of(router, rows, sharing.num_tokens)
    yield Observation(
        subject=router.tier.name,
        message=(
            f"{plural(len(readers), 'request')} sent to a worker for {int(predicted.sum()):,} "
            f"cached tokens, of which its pool has {int(hits[readers].sum()):,}: "
            f"{router.tier.name} "
            f"has no {' and '.join(fields)}, by which the engine keeps blocks apart; the first: "
            f"{pairs[0].reader}"
        ),
        requests=indices(router.trace, readers),
        num_tokens=num_lost,
        evidence=pairs,
        facts={"tier": router.tier.name, "fields": list(fields)},
    )


SPEC = PredicateSpec(
    title="a router expects reuse that the engine's key doesn't allow",
    scope="lookup",
    observe=_observe,
    parameters={
        "fields": Parameter(
            about="fields that the engine keys and the router may lack; by default all",
            kind="texts",
            choices=IDENTITY_FIELDS,
        )
    },
)
