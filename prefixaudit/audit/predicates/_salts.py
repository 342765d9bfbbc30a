"""Who used which salt, from the identities of a log. A salt is shown by a digest, never itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from prefixaudit.core.audit import AuditSubject, TierReplay
from prefixaudit.core.identity import Identity


@dataclass(kw_only=True)
class SaltUse:
    """One salt: its owners in order of their first request, and the requests of each.

    An owner is a trust domain where it is known, else a tenant; `unowned` are positions of requests
    of which neither is known. `names` are the tenants and domains, `other_names` users and models.
    """

    salt: str
    owners: dict[str, list[int]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    other_names: set[str] = field(default_factory=set)
    unowned: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Return how the salt is called in a report: 8 hex digits of its SHA-256."""
        return digest_of(self.salt)

    @property
    def first_owner_requests(self) -> list[int]:
        """Return the requests of who used the salt first; of all where no owner is known."""
        return next(iter(self.owners.values()), self.unowned)


def digest_of(salt: str) -> str:
    return hashlib.sha256(salt.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def owner_of(identity: Identity) -> str | None:
    """Return the trust domain, else the tenant, None where neither is known."""
    for value in (identity.trust_domain, identity.tenant):
        if isinstance(value, str):
            return value
    return None


def salts_of(subject: AuditSubject, name: str = "cache_salt") -> Iterator[SaltUse]:
    """Yield the salts of the log, in order of first use."""
    replay = first_replay(subject)
    if replay is None:
        return
    trace = replay.trace
    has_salt = np.array(
        [isinstance(value := getattr(i, name), str) and value != "" for i in trace.identities],
        dtype=np.bool_,
    )
    uses: dict[str, SaltUse] = {}
    order = trace.replay_order()
    for position in order[has_salt[trace.identity[order]]].tolist():
        identity = trace.identities[trace.identity[position]]
        salt = getattr(identity, name)
        use = uses.setdefault(salt, SaltUse(salt=salt))
        owner = owner_of(identity)
        if owner is None:
            use.unowned.append(position)
        else:
            use.owners.setdefault(owner, []).append(position)
        for names, values in (
            (use.names, (identity.tenant, identity.trust_domain)),
            (use.other_names, (identity.user, identity.model)),
        ):
            names.update(value for value in values if isinstance(value, str))
    yield from uses.values()


def first_replay(subject: AuditSubject) -> TierReplay | None:
    return subject.replays[0] if subject.replays else None
