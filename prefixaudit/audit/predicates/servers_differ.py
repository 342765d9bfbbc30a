"""Servers share a store and differ in something that its key leaves out.

Found: two servers of one tier are known to differ in one of the facts, the key doesn't hold it, and
nothing that the key does hold keeps them apart. Inconclusive: that isn't known. Servers whose
hashes can't be equal (roots of their own), or whose keys begin with texts of their own
(`cache_prefix`, `extra_backend_tag`), share nothing, whatever else they differ in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from prefixaudit.audit.hash_roots import root_of
from prefixaudit.audit.needs import answer_needs, names_of, written
from prefixaudit.audit.server_facts import Fact, fact_of, members_of, tier_names
from prefixaudit.core.audit import AuditSubject, ServerFacts, TierFacts
from prefixaudit.core.engine import TierKind
from prefixaudit.core.finding import Observation
from prefixaudit.core.identity import CONTENT_FIELDS, IDENTITY_FIELDS
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.core.unknown import UNKNOWN

_KINDS: Final = get_args(TierKind)
# What differs between requests of one server keeps no servers apart.
_OF_A_SERVER: Final = tuple(
    name for name in CONTENT_FIELDS if not name.startswith("lora_") and name != "prompt_embeds"
)

# Settings that put a text of the operator's before every key; most stores have none.
_PREFIXES: Final = ("cache_prefix", "extra_backend_tag")


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    kinds = params.get("kinds", ("external-store",))
    names = params.get("tiers")
    for tier in subject.tiers:
        if tier.tier.kind not in kinds:
            continue
        if names is not None and not set(tier_names(tier)) & set(names):
            continue
        if set(names_of(params.get("kept_apart_by"))) & {part.field for part in tier.tier.key}:
            continue
        for name in params["facts"]:
            if tier.tier.part(name) is None:
                yield from _of_fact(name, tier, subject, params)


def _of_fact(
    name: str, tier: TierFacts, subject: AuditSubject, params: Mapping[str, Any]
) -> Iterator[Observation]:
    needs = params.get("needs", {})
    members = []
    for server in members_of(tier, subject):
        answer = answer_needs(needs, server, subject)
        if answer.holds is not False:
            members.append((server, fact_of(name, server, subject), answer.unknown))
    found: list[ServerFacts] = []
    values: dict[str, str] = {}
    unknown: dict[str, None] = {}
    for (left, of_left, open_left), (right, of_right, open_right) in itertools.combinations(
        members, 2
    ):
        differs = _differs(of_left, of_right)
        if differs is False:
            continue
        apart, open_fields = _kept_apart(tier, subject, left, right)
        if apart:
            continue
        missing = (*([name] if differs is None else []), *open_left, *open_right, *open_fields)
        if missing:
            unknown |= dict.fromkeys(missing)
            continue
        for server, value in ((left, of_left), (right, of_right)):
            if server not in found:
                found.append(server)
                values[server.name] = written(value)
    subject_name = f"{tier.name}: {name}"
    place = f"{tier.name} ({'/'.join((tier.profile.name, tier.tier.name))})"
    facts = {"tier": tier.name, "tier_kind": tier.tier.kind, "fields": [name]}
    if found:
        listed = ", ".join(f"{server} {value}" for server, value in values.items())
        yield Observation(
            subject=subject_name,
            message=f"servers that share {place} differ in {name}, which its key leaves out: "
            + listed,
            location=tier.location or found[0].location,
            facts={**facts, "servers": list(values)},
        )
    elif unknown:
        servers = ", ".join(server.name for server, _, _ in members)
        yield Observation(
            subject=subject_name,
            message=f"{place} leaves {name} out of its key; not known of {servers}: "
            + ", ".join(unknown),
            verdict="inconclusive",
            location=tier.location,
            facts={**facts, "unknown_fields": list(unknown)},
        )


def _differs(left: Fact, right: Fact) -> bool | None:
    return None if left is UNKNOWN or right is UNKNOWN else left != right


def _kept_apart(
    tier: TierFacts, subject: AuditSubject, left: ServerFacts, right: ServerFacts
) -> tuple[bool, tuple[str, ...]]:
    """Say whether what the key holds keeps two servers apart, and what would have to be known."""
    unknown: list[str] = []
    for part in tier.tier.key:
        if part.field not in _OF_A_SERVER:
            continue
        differs = _differs(fact_of(part.field, left, subject), fact_of(part.field, right, subject))
        if differs:
            return True, ()
        if differs is None:
            unknown.append(part.field)
    for name in _PREFIXES:
        prefixes = [server.settings.get(name, UNKNOWN) for server in (left, right)]
        if UNKNOWN not in prefixes and prefixes[0] != prefixes[1]:
            return True, ()
        if prefixes.count(UNKNOWN) == 1 and any(isinstance(item, str) for item in prefixes):
            unknown.append(name)
    roots = root_of(left, tier, subject), root_of(right, tier, subject)
    if UNKNOWN in roots:
        unknown.append("hash_seed")
    elif roots[0] != roots[1]:
        return True, ()
    return False, tuple(unknown)


SPEC = PredicateSpec(
    title="servers share a store and differ in something that its key leaves out",
    scope="deployment",
    observe=_observe,
    parameters={
        "facts": Parameter(
            about="facts of servers, of which one differs", kind="texts", is_required=True
        ),
        "kept_apart_by": Parameter(
            about="identity fields of which one in the key makes up for the facts",
            kind="texts",
            choices=IDENTITY_FIELDS,
        ),
        "kinds": Parameter(about="kinds of tiers; by default stores", kind="texts", choices=_KINDS),
        "tiers": Parameter(about="profiles of tiers", kind="texts"),
        "needs": Parameter(about="facts that both servers need", kind="table"),
    },
)
