"""A salt that a tier can't take: characters that it doesn't allow, or too long.

Looks only where the deployment has a server or a tier that the rule names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.audit.predicates._rows import MAX_EVIDENCE, indices, pair
from prefixaudit.audit.predicates._salts import first_replay, salts_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    replay = first_replay(subject)
    if replay is None or not _applies(subject, params):
        return
    forbidden = set(params.get("characters", ""))
    longest = params.get("max_length")
    positions: list[int] = []
    labels: list[str] = []
    for use in salts_of(subject):
        if forbidden & set(use.salt) or (longest is not None and len(use.salt) > longest):
            labels.append(use.label)
            positions += [*use.unowned, *(p for owned in use.owners.values() for p in owned)]
    if not positions:
        return
    positions.sort()
    yield Observation(
        subject="salts",
        message=(
            f"{plural(len(labels), 'salt')} ({', '.join(labels[:5])}"
            f"{' …' if len(labels) > 5 else ''}) of {plural(len(positions), 'request')}: "
            "too long, or with characters that aren't taken"
        ),
        requests=indices(replay.trace, positions),
        evidence=tuple(
            pair(replay.log, replay.trace, position, -1, 0) for position in positions[:MAX_EVIDENCE]
        ),
    )


def _applies(subject: AuditSubject, params: Mapping[str, Any]) -> bool:
    tiers = params.get("tiers")
    if tiers is not None:
        names = {f"{tier.profile.name}:{tier.tier.name}" for tier in subject.tiers}
        if not names & set(tiers):
            return False
    engine = params.get("engine")
    if engine is None:
        return True
    return any(
        server.engine is not None
        and server.engine.name == engine
        and _in_range(server.engine, params.get("versions"))
        for server in subject.servers
    )


def _in_range(engine: EngineProfile, versions: str | None) -> bool:
    if versions is None:
        return True
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return Version(engine.facts_version or "") in SpecifierSet(versions, prereleases=True)
    except InvalidVersion:
        return False


SPEC = PredicateSpec(
    title="a salt has text that a tier can't take",
    scope="lookup",
    observe=_observe,
    parameters={
        "characters": Parameter(about="characters that aren't allowed", kind="text"),
        "max_length": Parameter(about="characters that are allowed at most", kind="integer"),
        "tiers": Parameter(about="PROFILE:TIER of which the deployment has one", kind="texts"),
        "engine": Parameter(about="engine that a server runs", kind="text"),
        "versions": Parameter(about="range of its versions, as `<0.30`", kind="text"),
    },
)
