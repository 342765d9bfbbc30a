"""What keeping reuse within tenants, domains or users would cost this pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from prefixaudit.audit.keys import content_of, owner_of
from prefixaudit.audit.public import public_nodes
from prefixaudit.core.identity import Identity
from prefixaudit.core.trace import Int64Array
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.plan.basis import Basis, number_forms
from prefixaudit.plan.report import Option
from prefixaudit.pool.separate import numbered, separated

if TYPE_CHECKING:
    from prefixaudit.plan.sweeps import Sweeper


def isolation_rows(
    sweeper: Sweeper, basis: Basis, public_tokens: Int64Array | None
) -> list[Option]:
    """Return a row for each policy whose fields the log knows, the most open one first.

    Content keeps apart in all of them. `public_tokens` (int64 [requests]) are the tokens at each
    prompt's start that everybody may share; None where no prefix is declared public.
    """
    identities = basis.trace.identities
    content = number_forms(content_of(identity) for identity in identities)
    forms: list[tuple[str, str, Callable[[Identity], object]]] = [
        ("shared by all", "", lambda _: None)
    ]
    if _is_known(basis, "trust_domain"):
        forms.append(("within a trust domain", "trust_domain", owner_of))
    if _is_known(basis, "tenant"):
        forms.append(("within a tenant", "tenant", lambda identity: identity.tenant))
    if _is_known(basis, "user"):
        forms.append(("within a user", "user", lambda i: (i.tenant, i.user)))

    def row(item: tuple[str, str, Callable[[Identity], object]]) -> Option:
        label, field, form = item
        groups = number_forms(form(identity) for identity in identities)
        space = numbered(content, groups)[basis.trace.identity]
        nodes = np.zeros(len(basis.trace.tree.parent), dtype=np.int64)
        own = separated(basis.trace, nodes, [space])[0]
        unknown = 0
        if field:
            lacking = np.array([getattr(i, field) is UNKNOWN for i in identities])
            unknown = int(lacking[basis.trace.identity].sum())
        return sweeper.option(
            "isolation",
            label,
            capacity_blocks=sweeper.capacity_blocks,
            cached=basis.cached_tokens(sweeper.capacity_blocks, own),
            with_safe=False,
            note=f"{unknown:,} requests of unknown {field} are one group" if unknown else "",
        )

    if len(forms) == 1:
        return []
    rows = sweeper.rows(forms, row)
    if public_tokens is not None and public_tokens.any() and _is_known(basis, "tenant"):
        tenants = number_forms(identity.tenant for identity in identities)
        shared = content[basis.trace.identity]
        private = numbered(shared, tenants[basis.trace.identity])
        cut, is_public = public_nodes(basis.trace, public_tokens)
        own = separated(cut, (~is_public).astype(np.int64), [numbered(shared), private])[0]
        rows.insert(
            1,
            sweeper.option(
                "isolation",
                "within a tenant, public prefixes shared",
                capacity_blocks=sweeper.capacity_blocks,
                cached=basis.cached_tokens(sweeper.capacity_blocks, own),
                with_safe=False,
            ),
        )
    return rows


def _is_known(basis: Basis, field: str) -> bool:
    return any(isinstance(getattr(i, field), str) for i in basis.trace.identities)
