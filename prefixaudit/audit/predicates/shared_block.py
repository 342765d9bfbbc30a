"""A request is served blocks that a request of another identity stored.

Found: a stretch of a prompt was served from a donor that is known to differ in one of the fields
`differs`. Inconclusive: none of them is known to differ, but one could, and isn't known on both
sides. Isolation fields count outside of public prefixes only; content fields everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.predicates._rows import by_identity, evidence_of, fields_of, indices, mask_of
from prefixaudit.core.audit import AuditSubject, TierReplay
from prefixaudit.core.engine import TierKind
from prefixaudit.core.finding import Observation
from prefixaudit.core.identity import CONTENT_FIELDS, IDENTITY_FIELDS, ISOLATION_FIELDS
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.wording import plural

_KINDS: Final = get_args(TierKind)
_KV_KINDS: Final = ("local-pool", "external-store")


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    kinds = params.get("kinds", _KV_KINDS)
    names = params.get("tiers")
    for replay in subject.replays:
        if replay.tier.tier.kind not in kinds:
            continue
        if names is not None and replay.tier.tier.name not in names:
            continue
        yield from _of_tier(replay, params)


def _of_tier(replay: TierReplay, params: Mapping[str, Any]) -> Iterator[Observation]:
    sharing = replay.sharing
    if not len(sharing.reader):
        return
    wanted: Sequence[str] = params["differs"]
    content = mask_of(name for name in wanted if name in CONTENT_FIELDS)
    isolation = mask_of(name for name in wanted if name in ISOLATION_FIELDS)
    # Of a stretch that differs in content all tokens are wrong; else only private ones are seen.
    tokens = np.where(sharing.differing & content, sharing.num_tokens, sharing.num_private_tokens)
    matters = (sharing.differing & np.uint32(content)) != 0
    matters |= ((sharing.differing & np.uint32(isolation)) != 0) & (tokens > 0)
    fits, decided = _conditions(replay, params)
    found = matters & fits
    yield from _found(replay, params, np.flatnonzero(found), tokens)

    in_doubt = sharing.unknown & np.uint32(content | isolation)
    only_isolation = (in_doubt & np.uint32(content)) == 0
    doubtful = (in_doubt != 0) & ~(only_isolation & (sharing.num_private_tokens == 0))
    doubtful &= ~matters
    doubtful &= fits | ~decided
    # It differs, but whether the rule's conditions hold isn't known.
    undecided = matters & ~fits & ~decided
    rows = np.flatnonzero(doubtful | undecided)
    if len(rows):
        yield _inconclusive(replay, params, rows, in_doubt)


def _conditions(
    replay: TierReplay, params: Mapping[str, Any]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each row whether `same` and `absent` hold, and whether that can be said."""
    sharing, trace = replay.sharing, replay.trace
    fits = np.ones(len(sharing.reader), dtype=np.bool_)
    decided = np.ones(len(sharing.reader), dtype=np.bool_)
    reader, donor = trace.identity[sharing.reader], trace.identity[sharing.donor]
    for name in params.get("same", ()):
        known, absent = by_identity(trace.identities, name)
        differs = (sharing.differing & np.uint32(mask_of([name]))) != 0
        either_unknown = ~known[reader] | ~known[donor]
        fits &= ~differs & ~either_unknown & ~absent[reader] & ~absent[donor]
        decided &= ~either_unknown | differs
    for name in params.get("absent", ()):
        known, absent = by_identity(trace.identities, name)
        both = absent[reader] & absent[donor]
        present = (known[reader] & ~absent[reader]) | (known[donor] & ~absent[donor])
        fits &= both
        decided &= both | present
    return fits, decided


def _found(
    replay: TierReplay,
    params: Mapping[str, Any],
    rows: NDArray[np.intp],
    tokens: NDArray[np.int64],
) -> Iterator[Observation]:
    for name, part in _parts(replay, params, rows):
        sharing = replay.sharing
        readers = np.unique(sharing.reader[part])
        mask = int(np.bitwise_or.reduce(sharing.differing[part]))
        differing = fields_of(mask & mask_of(params["differs"]))
        total = int(tokens[part].sum())
        first = evidence_of(replay, part, tokens)
        place = f" (the first at {first[0].reader_source})" if first[0].reader_source else ""
        yield Observation(
            subject=_subject(replay, params, name),
            message=(
                f"{plural(len(readers), 'request')}{_whose(params, name)} got {total:,} tokens "
                f"from blocks in {replay.tier.name} that another request stored under another "
                f"{' and '.join(differing)}; the first: {first[0].reader} <- "
                f"{first[0].donor}{place}"
            ),
            requests=indices(replay.trace, readers),
            num_tokens=total,
            evidence=first,
            facts={
                "tier": replay.tier.name,
                "tier_kind": replay.tier.tier.kind,
                "fields": list(differing),
                "num_private_tokens": int(sharing.num_private_tokens[part].sum()),
            },
        )


def _inconclusive(
    replay: TierReplay,
    params: Mapping[str, Any],
    rows: NDArray[np.intp],
    in_doubt: NDArray[np.uint32],
) -> Observation:
    sharing, trace = replay.sharing, replay.trace
    unknown = fields_of(int(np.bitwise_or.reduce(in_doubt[rows])))
    conditions = (*params.get("same", ()), *params.get("absent", ()))
    identities = np.unique(np.concatenate([sharing.reader[rows], sharing.donor[rows]]))
    used = {int(number) for number in trace.identity[identities]}
    extra = [
        name
        for name in conditions
        if any(getattr(trace.identities[number], name) is UNKNOWN for number in used)
    ]
    fields = tuple(dict.fromkeys((*unknown, *extra)))
    readers = np.unique(sharing.reader[rows])
    return Observation(
        subject=_subject(replay, params, None),
        message=(
            f"{' and '.join(fields)} not known for all of {plural(len(readers), 'request')} that "
            f"shared blocks in {replay.tier.name}: can't say whether they should have"
        ),
        verdict="inconclusive",
        requests=indices(trace, readers),
        num_tokens=int(sharing.num_tokens[rows].sum()),
        evidence=evidence_of(replay, rows, sharing.num_tokens),
        facts={"tier": replay.tier.name, "unknown_fields": list(fields)},
    )


def _parts(
    replay: TierReplay, params: Mapping[str, Any], rows: NDArray[np.intp]
) -> Iterator[tuple[str | None, NDArray[np.intp]]]:
    """Split rows by the reader's value of the field `by`, or don't."""
    if not len(rows):
        return
    field = params.get("by")
    if field is None:
        yield None, rows
        return
    trace = replay.trace
    numbers: dict[str, int] = {}
    codes = []
    for identity in trace.identities:
        value = getattr(identity, field)
        name = "unknown" if value is UNKNOWN else "none" if value is None else value
        codes.append(numbers.setdefault(name, len(numbers)))
    of_row = np.array(codes)[trace.identity[replay.sharing.reader[rows]]]
    for name, number in numbers.items():
        part = rows[of_row == number]
        if len(part):
            yield name, part


def _subject(replay: TierReplay, params: Mapping[str, Any], name: str | None) -> str:
    return replay.tier.name if name is None else f"{replay.tier.name}: {params['by']} {name}"


def _whose(params: Mapping[str, Any], name: str | None) -> str:
    return "" if name is None else f" of {params['by']} {name}"


SPEC = PredicateSpec(
    title="a request is served blocks that a request of another identity stored",
    scope="lookup",
    observe=_observe,
    parameters={
        "differs": Parameter(
            about="identity fields of which one differs",
            kind="texts",
            is_required=True,
            choices=IDENTITY_FIELDS,
        ),
        "same": Parameter(
            about="fields that both have, and equal", kind="texts", choices=IDENTITY_FIELDS
        ),
        "absent": Parameter(about="fields that neither has", kind="texts", choices=IDENTITY_FIELDS),
        "kinds": Parameter(
            about="kinds of tiers to look at; by default those that hold KV",
            kind="texts",
            choices=_KINDS,
        ),
        "tiers": Parameter(about="names of tiers in their engine's profile", kind="texts"),
        "by": Parameter(
            about="one finding for each value of this field of the reader (no salt, no key)",
            kind="text",
            choices=("lora_name", "tenant", "trust_domain", "model"),
        ),
    },
)
