"""What is known of an engine's prefix cache, for one version: the value of an engine profile.

An engine can have several places that keep or index blocks (tiers), each with a key of its own.
The first tier is the engine's own; the figures of a profile that has no tier named are its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.unknown import Known

TierKind: TypeAlias = Literal["local-pool", "external-store", "router-index"]
Placement: TypeAlias = Literal["all-blocks", "first-block", "overlapping-blocks", "namespace"]
"""Where a part enters the key: hashed with every block; with the first block, so that the chain
inherits it; with the blocks that overlap its placeholder; or beside the hash (folder, key text,
tree)."""
UnsetSeed: TypeAlias = Literal["none", "fixed", "random", "fixed-unless-xxhash", "process-hash"]
Visibility: TypeAlias = Literal["scheduled", "computed"]
EvictionRegime: TypeAlias = Literal[
    "all-to-back", "unhashed-to-front", "leaves", "priority-then-lru", "lru", "not-modelled"
]
MEDIA: Final = "media"
"""The name of the key part that holds images, audio and video; it is no identity field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One identity field (or `media`) in a key: where it enters and how it is written."""

    field: str
    placement: Placement
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguity:
    """Fields that can take each other's place in a key, so that two identities give one key.

    blocks  "first-block": only the first block can be equal; "all-blocks": whole chains can
    writes  "elements": each value is an untagged element of a list, in which absent ones are left
            out; "joined": they are one text without separators, in the order of `fields`
    """

    fields: tuple[str, ...]
    blocks: Placement
    how: str
    writes: Literal["elements", "joined"] = "elements"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashFacts:
    """How a tier hashes a block.

    recipe      name of the chain recipe that computes it (see chain/recipes)
    algorithms  names as the engine's option spells them, default first; empty: no choice
    root        the parent of block 0, as text
    unset_seed  what the root is when no seed is set: "none" there is no seed; "fixed" equal in
                all processes; "random" differs by process; "fixed-unless-xxhash"; "process-hash"
                Python's hash of a string or None
    published   the form in which a hash is published in events or stored as a key
    forms       how this release writes each part, by names that the recipe knows
    """

    recipe: str
    algorithms: tuple[str, ...]
    root: str
    unset_seed: UnsetSeed
    published: str
    forms: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One place that keeps or indexes blocks, and what its key holds.

    process_fields  fields outside the key that can't differ within one process, so that the
                    process's life holds them apart; empty where processes share the tier
    not_in_key      what else the key lacks, in words (no identity field)
    """

    name: str
    title: str
    kind: TierKind
    key: tuple[KeyPart, ...]
    hash: HashFacts | None
    process_fields: tuple[str, ...]
    ambiguities: tuple[Ambiguity, ...]
    not_in_key: tuple[str, ...]

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Return the identity fields in the key, in the order of Identity."""
        fields = {part.field for part in self.key}
        return tuple(name for name in IDENTITY_FIELDS if name in fields)

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """Return the identity fields that the key lacks, `process_fields` among them."""
        fields = {part.field for part in self.key}
        return tuple(name for name in IDENTITY_FIELDS if name not in fields)

    @property
    def media_in_key(self) -> bool:
        return any(part.field == MEDIA for part in self.key)

    def part(self, field: str) -> KeyPart | None:
        """Return the part of the key that holds `field`, None if none does."""
        return next((part for part in self.key if part.field == field), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """How the engine's own pool looks up, fills and empties.

    visibility           when a block can first be hit: once its request is scheduled, or after
                         the forward pass that computed it
    eviction_regime      "all-to-back": freed blocks go to the back of one free queue, hashed or
                         not; "unhashed-to-front": blocks without a hash go to the front of it;
                         "leaves": unlocked leaves of a radix tree by policy
    eviction_amount      radix trees: "need" (all that is asked for) or "shortfall" (what is
                         missing); None where it doesn't apply
    policies             eviction policies, default first
    num_reserved_blocks  blocks of the pool that never hold KV (vLLM's null block: 1)
    is_deduplicated      whether one hash is held by one block only
    lookup_unit_tokens   granularity of a hit: None is the block size
    has_lookahead_hashes drafting can switch to hashes that cover the next tokens, so that no
                         block is dropped
    drops_block_with_eagle  the last matched block is dropped when an EAGLE-like drafter runs
    cached_answers       which generated tokens enter the cache, in words
    """

    visibility: Visibility
    eviction_regime: EvictionRegime
    eviction_amount: Literal["need", "shortfall"] | None
    policies: tuple[str, ...]
    num_reserved_blocks: int
    is_deduplicated: bool
    lookup_unit_tokens: int | None
    has_lookahead_hashes: bool
    drops_block_with_eagle: bool
    cached_answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Several groups of layers with caches of their own (window, Mamba …).

    larger_block_hash           hash of a block made of several hash units: the small hashes
                                concatenated, or the last of them
    default_retention_interval  which blocks of window and Mamba groups are registered: None all
                                (dense), 0 only the tail at the last reusable prompt boundary
    rules                       the other rules, in words
    """

    larger_block_hash: Literal["concatenation", "last"] | None
    default_retention_interval: int | None
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What the engine publishes about its blocks.

    encoding  "none", "array" (positional, msgpack), "map" (keyed, msgpack) or UNKNOWN
    block_id  how a block is named in events, in words
    """

    encoding: Known[str]
    block_stored: tuple[str, ...]
    block_removed: tuple[str, ...]
    block_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a release changed, for the ranges that the profile's version lies in."""

    since: str
    until: str | None
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """The facts of one engine and version that decide hits and keys.

    `version` is the version asked for (None: none was, so the newest known is taken),
    `profile_version` the start of the newest range whose facts were taken. `key_fields` are the
    identity fields in the key of the engine's own tier. At least `min_recomputed_tokens` of a
    prompt are computed even on a full hit. `notes` say what was assumed.
    """

    name: str
    version: str | None
    default_block_size: int
    min_recomputed_tokens: int
    key_fields: tuple[str, ...]
    notes: tuple[str, ...] = ()
    title: str = ""
    profile_version: str | None = None
    oldest_version: str | None = None
    newest_version: str | None = None
    block_size_rule: str = ""
    last_token_rule: str = ""
    tiers: tuple[Tier, ...] = ()
    pool: PoolFacts | None = None
    groups: GroupFacts | None = None
    events: EventFacts | None = None
    facts: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """Return the identity fields that the key of the engine's own tier lacks."""
        return tuple(name for name in IDENTITY_FIELDS if name not in self.key_fields)

    @property
    def process_fields(self) -> tuple[str, ...]:
        """Return the missing fields of the own tier that the process's life holds apart."""
        return self.tiers[0].process_fields if self.tiers else ()

    @property
    def facts_version(self) -> str | None:
        """Return the version whose facts these are: the one asked for, or the newest known."""
        return self.version if self.version is not None else self.newest_version

    def tier(self, name: str) -> Tier | None:
        """Return the tier `name`, None if the engine has none of that name."""
        return next((tier for tier in self.tiers if tier.name == name), None)
