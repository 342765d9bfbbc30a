"""Keys as namespaces: what a tier writes into the key of a block, and what the complete key holds.

A tier's key is built from its profile: each part's placement says which blocks it enters, and an
ambiguity says which fields are written so that one can take another's place. Two identities of
equal written forms share blocks, whatever their fields are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from prefixaudit.audit.identities import table_of, value_of
from prefixaudit.core.engine import MEDIA, Ambiguity, Placement, Tier
from prefixaudit.core.identity import CONTENT_FIELDS, Identity
from prefixaudit.core.trace import Int64Array
from prefixaudit.core.unknown import UNKNOWN

Form: TypeAlias = tuple[object, ...]
_EVERYWHERE: Final[tuple[Placement, ...]] = ("all-blocks", "namespace")
_ISOLATION: Final = ("tenant", "trust_domain", "cache_salt", "extra_key")
# How a log's own number of an adapter's load stands in its revision.
ADAPTER_NUMBER: Final = "int_id="
_ADAPTER_FIELDS: Final = ("lora_name", "lora_revision", "lora_path")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenKey:
    """A key as two columns by identity: the namespace of the first block, and of all others.

    int64 [identities] each; `rest` refines `first`.
    """

    first: Int64Array
    rest: Int64Array


def written_key(tier: Tier, identities: tuple[Identity, ...]) -> WrittenKey:
    """Return the namespaces that a tier's key gives the identities; media are in the tree."""
    table = table_of(identities)
    fields = [part.field for part in tier.key if part.field != MEDIA]
    if keys_adapter_number(tier):
        fields.append("lora_revision")
    first = table.number(fields, lambda identity: _written(tier, identity, is_first=True))
    rest = table.number(
        fields,
        lambda identity: (
            _written(tier, identity, is_first=True),
            _written(tier, identity, is_first=False),
        ),
    )
    return WrittenKey(first=first, rest=rest)


def _written(tier: Tier, identity: Identity, *, is_first: bool) -> Form:
    entering = [
        part.field
        for part in tier.key
        if part.field != MEDIA
        and (part.placement in _EVERYWHERE or (is_first and part.placement == "first-block"))
    ]
    form: list[object] = []
    for ambiguity in tier.ambiguities:
        fields = [name for name in ambiguity.fields if name in entering]
        # Elsewhere the fields are not beside each other: they can't take each other's place.
        if len(fields) > 1 and (is_first or ambiguity.blocks == "all-blocks"):
            entering = [name for name in entering if name not in fields]
            form.append(_ambiguous(ambiguity, fields, identity))
    for name in entering:
        value: object = value_of(identity, name)
        if name == "lora_name" and keys_adapter_number(tier):
            value = _adapter_number(identity)
        form.append((name, value))
    return tuple(form)


def keys_adapter_number(tier: Tier) -> bool:
    """Say whether a key holds an adapter's number, by order of loads (vLLM up to 0.11.0)."""
    return tier.hash is not None and tier.hash.forms.get("lora") == "number"


def _adapter_number(identity: Identity) -> object:
    """Return the number that the log gives an adapter, else its name: one load, one number."""
    revision = identity.lora_revision
    if isinstance(revision, str) and revision.startswith(ADAPTER_NUMBER):
        return revision
    return identity.lora_name


def _ambiguous(ambiguity: Ambiguity, fields: list[str], identity: Identity) -> object:
    values: list[object] = []
    for name in fields:
        value = value_of(identity, name)
        if value is None:
            continue
        # What isn't known can't be said to collide. An adapter's id is a digest of its name or a
        # random number, so no text of a client can be held against its name.
        is_digest = ambiguity.writes == "joined" and name in _ADAPTER_FIELDS
        values.append((name, value) if value is UNKNOWN or is_digest else value)
    if ambiguity.writes == "joined":
        text = "".join(value for value in values if isinstance(value, str))
        return (text, *(value for value in values if not isinstance(value, str)))
    return tuple(values)


def content_of(identity: Identity, ignored: frozenset[str] = frozenset()) -> Form:
    """Return the content identity as a value: all that changes the KV, but the fields `ignored`.

    An adapter is its name and its revision, or its path where the revision isn't known.
    """
    form: list[object] = []
    for name in CONTENT_FIELDS:
        if name in ignored or name in _ADAPTER_FIELDS:
            continue
        form.append(getattr(identity, name))
    lora_name = identity.lora_name
    if lora_name is not None:
        revision = identity.lora_revision
        is_known = isinstance(revision, str)
        form.append((lora_name, revision if is_known else ("path", identity.lora_path)))
    return tuple(form)


def content_numbers(
    identities: tuple[Identity, ...], ignored: frozenset[str] = frozenset()
) -> Int64Array:
    """Number the content identities (int64 [identities])."""
    return table_of(identities).number(
        CONTENT_FIELDS, lambda identity: content_of(identity, ignored)
    )


def isolation_numbers(identities: tuple[Identity, ...]) -> Int64Array:
    """Number the isolation identities (int64 [identities])."""
    return table_of(identities).number(_ISOLATION, isolation_of)


def owner_of(identity: Identity) -> Form:
    """Return who may observe the reuse: the trust domain where it is known, else the tenant."""
    if isinstance(identity.trust_domain, str):
        return ("trust_domain", identity.trust_domain)
    return ("tenant", identity.tenant)


def isolation_of(identity: Identity) -> Form:
    """Return the isolation identity as a value: the owner, the salt and the extra key."""
    return (
        *owner_of(identity),
        value_of(identity, "cache_salt"),
        value_of(identity, "extra_key"),
    )
