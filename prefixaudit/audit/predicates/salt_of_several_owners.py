"""One salt stands for several tenants, so it keeps none of them apart.

Isolation follows the salt, not the login: whoever sends a salt gets the blocks that were stored
under it. The requests found are those of all but the first owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.audit.predicates._rows import MAX_EVIDENCE, indices, pair
from prefixaudit.audit.predicates._salts import first_replay, salts_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    replay = first_replay(subject)
    if replay is None:
        return
    unowned: list[int] = []
    num_salts = 0
    for use in salts_of(subject):
        unowned += use.unowned
        num_salts += bool(use.unowned)
        if len(use.owners) < 2:
            continue
        first, *others = use.owners
        positions = sorted(p for name in others for p in use.owners[name])
        donor = use.owners[first][0]
        yield Observation(
            subject=f"salt {use.label}",
            message=(
                f"salt {use.label} of {first} was also used by {', '.join(others[:5])}"
                f"{' and others' if len(others) > 5 else ''} in "
                f"{plural(len(positions), 'request')}: it came from the client, or one salt is "
                "configured for several tenants"
            ),
            requests=indices(replay.trace, positions),
            evidence=tuple(
                pair(replay.log, replay.trace, position, donor, 0)
                for position in positions[:MAX_EVIDENCE]
            ),
            facts={"num_owners": len(use.owners)},
        )
    if unowned:
        yield Observation(
            subject="salts of unknown owners",
            message=(
                f"tenant not known for {plural(len(unowned), 'request')} with "
                f"{plural(num_salts, 'salt')}: can't say whether tenants share a salt"
            ),
            verdict="inconclusive",
            requests=indices(replay.trace, unowned),
            evidence=tuple(
                pair(replay.log, replay.trace, position, -1, 0)
                for position in unowned[:MAX_EVIDENCE]
            ),
            facts={"unknown_fields": ["tenant"]},
        )


SPEC = PredicateSpec(
    title="one salt stands for several tenants",
    scope="lookup",
    observe=_observe,
)
