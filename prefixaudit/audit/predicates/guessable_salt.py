"""A salt that somebody else can guess: it protects nothing against who sets it on purpose.

Guessable is what is short, what holds or is a digest of a name that others know (tenant, trust
domain, user, model), a number, or text of few different characters.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from prefixaudit.audit.predicates._rows import MAX_EVIDENCE, indices, pair
from prefixaudit.audit.predicates._salts import first_replay, salts_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.wording import plural

# vLLM advises 256 bits; 12 characters of Base64 are 72 bits, out of reach of timing probes.
_MIN_LENGTH: Final = 12
_MIN_DIFFERENT: Final = 6
_PLAIN: Final = re.compile(r"[^a-z0-9]+")
_MIN_NAME: Final = 3


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    replay = first_replay(subject)
    if replay is None:
        return
    shortest = params.get("min_length", _MIN_LENGTH)
    reasons: dict[str, list[str]] = {}
    positions: list[int] = []
    for use in salts_of(subject):
        reason = why_guessable(use.salt, use.names, use.other_names, min_length=shortest)
        if reason is not None:
            reasons.setdefault(reason, []).append(use.label)
            positions += use.first_owner_requests
    if not positions:
        return
    positions.sort()
    what = "; ".join(
        f"{plural(len(labels), 'salt')} {reason} ({', '.join(labels[:5])}"
        f"{' …' if len(labels) > 5 else ''})"
        for reason, labels in reasons.items()
    )
    yield Observation(
        subject="salts",
        message=f"{what}, in {plural(len(positions), 'request')} of those who used them first",
        requests=indices(replay.trace, positions),
        evidence=tuple(
            pair(replay.log, replay.trace, position, -1, 0) for position in positions[:MAX_EVIDENCE]
        ),
        facts={"num_salts": sum(len(labels) for labels in reasons.values())},
    )


def why_guessable(
    salt: str,
    names: Iterable[str],
    other_names: Iterable[str] = (),
    *,
    min_length: int = _MIN_LENGTH,
) -> str | None:
    """Return what makes a salt guessable, None where nothing does.

    Digests are tried of `names` only: of users there can be as many as requests.
    """
    plain = _PLAIN.sub("", salt.lower())
    for name in (*names, *other_names):
        known = _PLAIN.sub("", name.lower())
        if len(known) >= _MIN_NAME and known in plain:
            return "holding a name that others know"
    if any(salt in _digests(name) for name in names):
        return "being the digest of a name that others know"
    if len(salt) < min_length:
        return f"of fewer than {min_length} characters"
    if plain.isdecimal():
        return "being a number"
    if len(set(salt)) < _MIN_DIFFERENT:
        return f"of fewer than {_MIN_DIFFERENT} different characters"
    return None


@lru_cache(maxsize=4096)
def _digests(name: str) -> frozenset[str]:
    raw = name.encode("utf-8", "surrogatepass")
    found = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex()}
    for algorithm in ("md5", "sha1", "sha256"):
        digest = hashlib.new(algorithm, raw, usedforsecurity=False)
        found |= {digest.hexdigest(), digest.hexdigest().upper()}
        found |= {digest.hexdigest()[:length] for length in (16, 32)}
        found |= {
            base64.b64encode(digest.digest()).decode(),
            base64.urlsafe_b64encode(digest.digest()).decode(),
        }
    return frozenset(found)


SPEC = PredicateSpec(
    title="a salt can be guessed",
    scope="lookup",
    observe=_observe,
    parameters={
        "min_length": Parameter(about="characters that a salt has at least", kind="integer")
    },
)
