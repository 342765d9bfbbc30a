"""A place that keeps or indexes blocks leaves something out of its key, and a server puts it there.

What the key of a tier holds is asked of the engine's profile, so that a rule holds for every engine
and version of which that is known. Found: the tier is as the rule says, and one of the servers that
share it has all facts in `needs`. Inconclusive: it isn't known of any that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from prefixaudit.audit.needs import Answer, answer_needs, is_in_range, names_of
from prefixaudit.audit.server_facts import engine_of, members_of, tier_names
from prefixaudit.core.audit import AuditSubject, ServerFacts, TierFacts
from prefixaudit.core.engine import MEDIA, Tier, TierKind
from prefixaudit.core.finding import Observation
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.rule import Parameter, PredicateSpec

_KINDS: Final = get_args(TierKind)
_FIELDS: Final = (*IDENTITY_FIELDS, MEDIA)


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    kinds, names = params.get("kinds"), params.get("tiers")
    for tier in subject.tiers:
        if kinds is not None and tier.tier.kind not in kinds:
            continue
        if names is not None and not set(tier_names(tier)) & set(names):
            continue
        version = tier.profile.version
        in_range = is_in_range(version, params.get("since"), params.get("before"))
        if in_range is False:
            continue
        about = _about(tier.tier, params)
        is_doubtful = in_range is None
        if version is None and about is None:
            # The newest facts were taken; an older release may well be what the rule is about.
            about = _about_oldest(tier, params)
            is_doubtful = True
        if about is not None:
            yield from _of_members(tier, subject, params, about, version_unknown=is_doubtful)


def _about_oldest(tier: TierFacts, params: Mapping[str, Any]) -> tuple[str, ...] | None:
    oldest = tier.profile.oldest_version
    if oldest is None:
        return None
    from prefixaudit.engines import load_profile

    facts = load_profile(f"{tier.profile.name}@{oldest}").tier(tier.tier.name)
    return None if facts is None else _about(facts, params)


def _about(tier: Tier, params: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what a rule says of the tier itself, as sentences; None where it doesn't hold."""
    about: list[str] = []
    present = {part.field for part in tier.key}
    lacks = names_of(params.get("lacks"))
    if present & set(lacks) or set(names_of(params.get("has"))) - present:
        return None
    if lacks:
        about.append(f"its key has no {' and no '.join(lacks)}")
    fields = names_of(params.get("ambiguous"))
    if fields:
        how = [item.how for item in tier.ambiguities if set(fields) <= set(item.fields)]
        if not how:
            return None
        about.append(how[0])
    actual = tier.hash.forms if tier.hash is not None else {}
    for form, expected in params.get("forms", {}).items():
        if actual.get(form) not in names_of(expected):
            return None
        about.append(f"{form} enters it as {actual[form]}")
    return tuple(about)


def _of_members(
    tier: TierFacts,
    subject: AuditSubject,
    params: Mapping[str, Any],
    about: tuple[str, ...],
    *,
    version_unknown: bool,
) -> Iterator[Observation]:
    engines = names_of(params.get("engines"))
    answers: list[tuple[ServerFacts, Answer]] = []
    for server in members_of(tier, subject):
        if engines and engine_of(server)[0] not in engines:
            continue
        answers.append((server, answer_needs(params.get("needs", {}), server, subject)))
    found = [(server, answer) for server, answer in answers if answer.holds is True]
    doubtful = [(server, answer) for server, answer in answers if answer.holds is None]
    version = tier.profile.version
    label = f"{tier.name} ({'/'.join((tier.profile.name, tier.tier.name))}"
    label += f" {version})" if version else ")"
    facts = {"tier": tier.name, "tier_kind": tier.tier.kind}
    unknown: tuple[str, ...] = ()
    if version_unknown and (found or doubtful):
        unknown += (f"version of {tier.profile.name}",)
    if not found:
        unknown += tuple(dict.fromkeys(name for _, answer in doubtful for name in answer.unknown))
    if unknown:
        members = ", ".join(server.name for server, _ in (found or doubtful))
        yield Observation(
            subject=tier.name,
            message=f"{'; '.join((label, *about))}; not known of {members}: {', '.join(unknown)}",
            verdict="inconclusive",
            location=tier.location,
            facts={**facts, "unknown_fields": list(unknown)},
        )
    elif found:
        members = ", ".join(server.name for server, _ in found)
        known = found[0][1].known
        yield Observation(
            subject=tier.name,
            message="; ".join(
                (label, *about, f"used by {members}" + (f": {', '.join(known)}" if known else ""))
            ),
            location=tier.location,
            facts={**facts, "servers": [server.name for server, _ in found]},
        )


SPEC = PredicateSpec(
    title="a tier leaves something out of its key that a server of it uses",
    scope="deployment",
    observe=_observe,
    parameters={
        "kinds": Parameter(about="kinds of tiers; by default all", kind="texts", choices=_KINDS),
        "tiers": Parameter(
            about="profiles of tiers: 'lmcache', 'lmcache/in-process' …", kind="texts"
        ),
        "since": Parameter(about="first affected release of the tier's profile", kind="text"),
        "before": Parameter(about="first release of it that isn't affected any more", kind="text"),
        "lacks": Parameter(
            about="fields that are all missing from its key", kind="texts", choices=_FIELDS
        ),
        "has": Parameter(about="fields that its key has", kind="texts", choices=_FIELDS),
        "ambiguous": Parameter(
            about="fields that can take each other's place in its key",
            kind="texts",
            choices=_FIELDS,
        ),
        "forms": Parameter(
            about="how its hash writes a part, by the names of its chain recipe", kind="table"
        ),
        "engines": Parameter(about="engines of the servers; by default all", kind="texts"),
        "needs": Parameter(about="facts of a server, as for server-facts", kind="table"),
    },
)
