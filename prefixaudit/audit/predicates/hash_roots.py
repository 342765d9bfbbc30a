"""Servers share a store, but their block hashes can't be equal: nothing in it is ever hit twice.

`random`: a server's root is new in every process, so that it finds neither another server's blocks
nor its own of before a restart. `different`: two servers have roots that are known and differ, by
seed, algorithm or release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.audit.hash_roots import RANDOM, Root, root_of
from prefixaudit.audit.server_facts import members_of
from prefixaudit.core.audit import AuditSubject, TierFacts
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.core.unknown import UNKNOWN


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    for tier in subject.tiers:
        if tier.tier.kind != "external-store":
            continue
        roots = {
            server.name: root_of(server, tier, subject) for server in members_of(tier, subject)
        }
        if params["roots"] == "random":
            yield from _random(tier, roots)
        else:
            yield from _different(tier, roots)


def _random(tier: TierFacts, roots: Mapping[str, Root | object]) -> Iterator[Observation]:
    random = [name for name, root in roots.items() if isinstance(root, tuple) and root[0] == RANDOM]
    if random:
        yield Observation(
            subject=tier.name,
            message=f"{tier.name} keeps blocks under hashes that begin at a random root in each "
            f"process of {', '.join(random)}",
            location=tier.location,
            facts={"tier": tier.name, "servers": random},
        )
    elif unknown := [name for name, root in roots.items() if root is UNKNOWN]:
        yield Observation(
            subject=tier.name,
            message=f"whether the hashes in {tier.name} begin at a random root isn't known of "
            f"{', '.join(unknown)}: hash_seed, hash_algorithm or the release is missing",
            verdict="inconclusive",
            location=tier.location,
            facts={"tier": tier.name, "unknown_fields": ["hash_seed"]},
        )


def _different(tier: TierFacts, roots: Mapping[str, Root | object]) -> Iterator[Observation]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, root in roots.items():
        if isinstance(root, tuple) and root[0] != RANDOM:
            groups.setdefault(root, []).append(name)
    if len(groups) > 1:
        listed = "; ".join(", ".join(names) for names in groups.values())
        yield Observation(
            subject=tier.name,
            message=f"{tier.name} is shared by servers whose block hashes can't be equal "
            f"({len(groups)} groups: {listed})",
            location=tier.location,
            facts={"tier": tier.name, "groups": list(groups.values())},
        )


SPEC = PredicateSpec(
    title="servers share a store, but their block hashes can't be equal",
    scope="deployment",
    observe=_observe,
    parameters={
        "roots": Parameter(
            about="which fault: a random root, or roots that differ",
            kind="text",
            is_required=True,
            choices=("random", "different"),
        ),
    },
)
