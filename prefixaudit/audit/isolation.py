"""The isolation tax: what a pool would hit if reuse were kept within tenants, domains or users.

Content always keeps apart; each policy says who may reuse whose blocks. The salts of the log play
no part: a policy is what a gateway would do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.identities import ABSENT_CODE, UNKNOWN_CODE, table_of
from prefixaudit.audit.keys import content_numbers, owner_of
from prefixaudit.audit.public import public_nodes
from prefixaudit.audit.tiers import PoolReplay
from prefixaudit.core.audit import AuditLog, TierFacts
from prefixaudit.core.identity import Identity
from prefixaudit.core.pool import Lookups
from prefixaudit.core.report import IsolationPolicy, IsolationRow
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.pool.lru import replay_lru
from prefixaudit.pool.separate import numbered, separated


def isolation_table(
    log: AuditLog,
    tier: TierFacts,
    *,
    apart: Int64Array,
    ignored_fields: frozenset[str],
    saved_flops: Callable[[Int64Array], float] | None,
    pool: PoolReplay | None = None,
) -> tuple[IsolationRow, ...]:
    """Return a row for each policy whose fields the log knows, the most open one first.

    apart        int64 [requests]: what keeps requests apart in any case (servers, emptied pools)
    saved_flops  FLOPs that the cached tokens of all requests (int64 [requests]) spare
    pool         replays a separated trace in the tier's pool; by default LRU
    """
    trace = log.trace(tier.block_size)
    if trace is None:
        return ()
    identities = trace.identities
    table = table_of(identities)
    if not any((table.codes(name) != UNKNOWN_CODE).any() for name in ("tenant", "trust_domain")):
        return ()
    shared = numbered(apart, content_numbers(identities, ignored_fields)[trace.identity])
    tenants = table.codes("tenant")[trace.identity]
    total = int(trace.num_prompt_tokens.sum())

    def known(*names: str) -> int:
        """Return how many requests have one of the fields."""
        has = np.any([table.codes(name) != UNKNOWN_CODE for name in names], axis=0)
        return int(has[trace.identity].sum())

    def row(policy: IsolationPolicy, own: BlockTrace, groups: Int64Array, names: str) -> None:
        lookups = replay(own)
        cached = lookups.num_cached_tokens
        num_cached = int(cached.sum())
        rows.append(
            IsolationRow(
                policy=policy,
                num_groups=len(np.unique(groups)),
                num_requests_unknown=trace.num_requests - known(*names.split()) if names else 0,
                num_cached_tokens=num_cached,
                token_hit_rate=num_cached / total if total else None,
                prefill_flops_saved=None if saved_flops is None else saved_flops(cached),
            )
        )

    def in_lru_pool(own: BlockTrace) -> Lookups:
        return replay_lru(
            own,
            np.zeros(own.num_requests, dtype=np.int32),
            capacity_blocks=tier.capacity_blocks,
            min_recomputed_tokens=tier.profile.min_recomputed_tokens,
            flops_by_depth=None,
            with_donors=False,
        )[1]

    replay = in_lru_pool if pool is None else pool
    rows: list[IsolationRow] = []
    same: NDArray[np.int64] = np.zeros(len(trace.tree.parent), dtype=np.int64)
    row("shared", separated(trace, same, [shared])[0], np.zeros(1, dtype=np.int64), "")
    if log.public_tokens.any() and known("tenant"):
        cut, is_public = public_nodes(trace, log.public_tokens)
        private = numbered(shared, tenants)
        own = separated(cut, (~is_public).astype(np.int64), [shared, private])[0]
        row("public-prefix-shared", own, tenants, "tenant")
    owner, both = ("trust_domain", "tenant"), ("tenant", "user")
    forms: list[tuple[IsolationPolicy, str, tuple[str, ...], Callable[[Identity], object]]] = [
        ("tenant", "tenant", ("tenant",), lambda identity: identity.tenant),
        ("user", "user", both, lambda identity: (identity.tenant, identity.user)),
    ]
    if (table.codes("trust_domain") > ABSENT_CODE).any():
        forms.insert(0, ("trust-domain", "trust_domain tenant", owner, owner_of))
    for policy, names, fields, form in forms:
        if known(*names.split()):
            groups = table.number(fields, form)[trace.identity]
            own = separated(trace, same, [numbered(shared, groups)])[0]
            row(policy, own, groups, names)
    return tuple(rows)
