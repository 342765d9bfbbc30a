"""Some requests of a log with several tenants carry a salt and others don't.

A gateway that sets the salt sets it for all: what comes without one shares with everybody who
comes without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prefixaudit.audit.predicates._rows import MAX_EVIDENCE, by_identity, indices, pair
from prefixaudit.audit.predicates._salts import first_replay, owner_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    replay = first_replay(subject)
    if replay is None:
        return
    trace = replay.trace
    owners = {owner_of(identity) for identity in trace.identities} - {None}
    known, absent = by_identity(trace.identities, "cache_salt")
    salted = (known & ~absent)[trace.identity]
    unsalted = np.flatnonzero(absent[trace.identity])
    if len(owners) < 2 or not salted.any() or not len(unsalted):
        return
    yield Observation(
        subject="salts",
        message=(
            f"{plural(len(unsalted), 'request')} of {trace.num_requests:,} without a salt, in a "
            f"log of {plural(len(owners), 'tenant')} in which {int(salted.sum()):,} have one"
        ),
        requests=indices(trace, unsalted.tolist()),
        evidence=tuple(
            pair(replay.log, trace, position, -1, 0)
            for position in unsalted[:MAX_EVIDENCE].tolist()
        ),
    )


SPEC = PredicateSpec(
    title="some requests have a salt and others don't",
    scope="lookup",
    observe=_observe,
)
