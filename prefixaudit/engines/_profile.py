"""Loads an engine profile for a version: the base facts and the ranges that hold the version.

Fields of a file: `title`, `block_size`, `block_size_rule`, `min_recomputed_tokens`,
`last_token_rule`, `oldest_version`, `newest_version`, `releases_read`, `facts`, `sources`,
`[pool]`, `[groups]`, `[events]` and one `[tiers.NAME]` a tier with `[tiers.NAME.hash]`,
`[tiers.NAME.key.FIELD]` and `[tiers.NAME.ambiguities.ANY]`, as core/engine.py describes them.
A tier with `chain_of = "ENGINE"` stores blocks under that engine's hashes: what is in that key is
in this one too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Any, Final, get_args

from packaging.version import InvalidVersion, Version

from prefixaudit.core.engine import (
    MEDIA,
    Ambiguity,
    Change,
    EngineProfile,
    EventFacts,
    EvictionRegime,
    GroupFacts,
    HashFacts,
    KeyPart,
    Placement,
    PoolFacts,
    Tier,
    TierKind,
    UnsetSeed,
    Visibility,
)
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import UsageError
from prefixaudit.registry import FileRegistry
from prefixaudit.tables import Table, TomlDocument

_PACKAGE: Final = "prefixaudit.engines"
_RANGE_KEYS: Final = ("from", "before", "about")
_OLDEST = Version("0")


def _text_of(file: Traversable) -> tuple[str, str]:
    return (f"engines/{file.name}", file.read_text(encoding="utf-8"))


ENGINES: Final[FileRegistry[tuple[str, str]]] = FileRegistry(
    kind="engine", package=_PACKAGE, load=_text_of
)
"""Name of each engine with a profile, and its file: (name for messages, text)."""


@lru_cache(maxsize=256)
def load_profile(spec: str, *, host: EngineProfile | None = None) -> EngineProfile:
    """Return the profile of `NAME` or `NAME@VERSION`.

    Without a version the newest known one is taken, and a version that wasn't read takes the
    nearest older range; `notes` say so. `host` is the engine whose hashes an external store keeps
    blocks under (default: the newest known release of the one that the profile names).
    Raises UsageError for an unknown engine, a version that is none, or one older than all known.
    """
    name, separator, version = spec.strip().partition("@")
    source, text = ENGINES[name]
    if separator and not version:
        raise UsageError(f"engine '{spec}' has an empty version; expected NAME or NAME@VERSION")
    return _profile(name, version or None, TomlDocument(source, text), host)


def _profile(
    name: str, version: str | None, document: TomlDocument, host: EngineProfile | None
) -> EngineProfile:
    base = document.root
    newest = base.text("newest_version", default=None)
    oldest = base.text("oldest_version", default=None)
    read = base.texts("releases_read", default=())
    wanted = _wanted(name, version, newest, oldest)

    changes: list[Change] = []
    overlays: list[Table] = []
    for table in sorted(base.tables("versions"), key=lambda table: _start(table)):
        table.allow_any_keys()
        since = table.text("from")
        until = table.text("before", default=None)
        about = table.text("about")
        if wanted is None or not since or Version(since) > wanted:
            continue
        if until is not None and Version(until) <= wanted:
            continue
        overlays.append(table)
        changes.append(Change(since=since, until=until, about=about))

    merged = document.overlaid(base, overlays, without=_RANGE_KEYS)
    for key in ("newest_version", "oldest_version", "releases_read", "versions"):
        merged.any_value(key, default=None)
    tiers = _tiers(merged.table("tiers"), name, version, host)
    profile = EngineProfile(
        name=name,
        version=version,
        profile_version=max((change.since for change in changes), key=Version, default=oldest),
        oldest_version=oldest,
        newest_version=newest,
        title=merged.text("title"),
        default_block_size=merged.integer("block_size", minimum=1),
        block_size_rule=merged.text("block_size_rule", default=""),
        min_recomputed_tokens=merged.integer("min_recomputed_tokens", minimum=0),
        last_token_rule=merged.text("last_token_rule", default=""),
        key_fields=tiers[0].key_fields if tiers else (),
        tiers=tiers,
        pool=_pool(merged.table("pool")) if "pool" in merged else None,
        groups=_groups(merged.table("groups")) if "groups" in merged else None,
        events=_events(merged.table("events")) if "events" in merged else None,
        facts=merged.texts("facts", default=()),
        changes=tuple(changes),
        sources=merged.texts("sources"),
        notes=_notes(name, version, wanted, newest, read, changes, oldest),
    )
    if not tiers:
        base.problem("tiers", "missing; expected at least one [tiers.NAME]")
    document.root = merged
    document.finish()
    return profile


def _start(table: Table) -> Version:
    since = table.data.get("from")
    try:
        return Version(since) if isinstance(since, str) else _OLDEST
    except InvalidVersion:
        table.problem("from", "is no version; expected a release such as 0.24.0")
        return _OLDEST


def _wanted(
    name: str, version: str | None, newest: str | None, oldest: str | None
) -> Version | None:
    """Return the version whose ranges are taken; None for an engine without known releases."""
    if version is None:
        return None if newest is None else Version(newest)
    try:
        wanted = Version(version.removeprefix("v"))
    except InvalidVersion:
        raise UsageError(
            f"'{version}' is no version of {name}; expected a release such as {newest or '1.0'}"
        ) from None
    if oldest is not None and wanted < Version(oldest):
        raise UsageError(
            f"{name} {version} is older than all releases known here; the oldest is {oldest}"
        )
    return wanted


def _notes(
    name: str,
    version: str | None,
    wanted: Version | None,
    newest: str | None,
    read: tuple[str, ...],
    changes: list[Change],
    oldest: str | None,
) -> tuple[str, ...]:
    if version is None:
        if newest is None:
            return ()
        return (f"no version of {name} was given: facts of {newest}, the newest known",)
    if newest is None:
        return (f"no release ranges are known for {name}: version {version} changes nothing",)
    if wanted is not None and wanted > Version(newest):
        return (f"{name} {version} is newer than all known releases: facts of {newest} are used",)
    lines = {Version(release).release[:2] for release in read}
    if wanted is not None and lines and wanted.release[:2] not in lines:
        start = max((change.since for change in changes), key=Version, default=oldest)
        return (
            f"{name} {version} was not read: facts of the nearest older range are used, "
            f"which starts at {start}",
        )
    return ()


def _choices(alias: Any) -> tuple[str, ...]:
    return get_args(alias)


def _tiers(
    tables: Table, engine: str, version: str | None, host: EngineProfile | None
) -> tuple[Tier, ...]:
    return tuple(_tier(tables.table(name), name, engine, version, host) for name in tables)


def _tier(
    table: Table, name: str, engine: str, version: str | None, host: EngineProfile | None
) -> Tier:
    chain_of = table.text("chain_of", default=None, choices=tuple(ENGINES))
    follows_version = table.boolean("chain_of_same_version", default=False)
    kind: Any = table.text("kind", choices=_choices(TierKind))
    key = _key(table.table("key"))
    ambiguities = _ambiguities(table.table("ambiguities"))
    hashing = _hash(table.table("hash"), host) if "hash" in table else None
    not_in_key = table.texts("not_in_key", default=())
    if chain_of is not None and chain_of in ENGINES and chain_of != engine:
        chain = _chain_tier(chain_of, version if follows_version else None, host)
        own = {part.field for part in key}
        key = (*(part for part in chain.key if part.field not in own), *key)
        ambiguities = (*chain.ambiguities, *ambiguities)
        hashing = hashing or chain.hash
    return Tier(
        name=name,
        title=table.text("title"),
        kind=kind,
        key=key,
        hash=hashing,
        process_fields=table.texts("process_fields", default=(), choices=IDENTITY_FIELDS),
        ambiguities=ambiguities,
        not_in_key=not_in_key,
    )


def _chain_tier(chain_of: str, version: str | None, host: EngineProfile | None) -> Tier:
    if host is None or host.name != chain_of:
        host = load_profile(chain_of if version is None else f"{chain_of}@{version}")
    return next((tier for tier in host.tiers if tier.hash is not None), host.tiers[0])


def _key(table: Table) -> tuple[KeyPart, ...]:
    known = (*IDENTITY_FIELDS, MEDIA)
    parts = []
    for field in table:
        part = table.table(field)
        if field not in known:
            table.problem(field, "is no identity field; expected one of " + ", ".join(known))
        placement: Any = part.text("placement", choices=_choices(Placement))
        parts.append(KeyPart(field=field, placement=placement, form=part.text("form")))
    return tuple(parts)


def _ambiguities(table: Table) -> tuple[Ambiguity, ...]:
    found = []
    for name in table:
        entry = table.table(name)
        blocks: Any = entry.text("blocks", choices=("first-block", "all-blocks"))
        writes: Any = entry.text("writes", default="elements", choices=("elements", "joined"))
        found.append(
            Ambiguity(
                fields=entry.texts("fields", choices=(*IDENTITY_FIELDS, MEDIA)),
                blocks=blocks,
                how=entry.text("how"),
                writes=writes,
            )
        )
    return tuple(found)


def _hash(table: Table, host: EngineProfile | None) -> HashFacts:
    unset_seed: Any = table.text("unset_seed", choices=_choices(UnsetSeed))
    host_name = table.text("host", default=None, choices=tuple(ENGINES))
    facts = HashFacts(
        recipe=table.text("recipe"),
        algorithms=table.texts("algorithms", default=()),
        root=table.text("root"),
        unset_seed=unset_seed,
        published=table.text("published"),
        forms=_forms(table.table("forms")),
    )
    if host_name is None or host_name not in ENGINES:
        return facts
    return _with_host(facts, _chain_tier(host_name, None, host).hash)


def _with_host(facts: HashFacts, host: HashFacts | None) -> HashFacts:
    """Add the algorithms of the engine that lends its functions, and its root's rule for them.

    (LMCache: vLLM's `init_none_hash` came with 0.10.0; before, the first prefix was 0. Either
    name of the CBOR algorithm stands for the one that vLLM has.)
    """
    assert host is not None, "an engine that lends hash functions has none"
    lent = [name for name in host.algorithms if name not in facts.algorithms]
    if "sha256_cbor" in lent and "sha256_cbor_64bit" not in lent:
        lent.append("sha256_cbor_64bit")
    has_root = host.forms.get("root") == "hashed-seed"
    return replace(
        facts,
        algorithms=(*facts.algorithms, *lent),
        unset_seed=host.unset_seed,
        forms={
            **facts.forms,
            "hash": host.forms.get("hash", ""),
            "root": "host" if has_root else "zero",
        },
    )


def _forms(table: Table) -> dict[str, str]:
    return {name: table.text(name) for name in table}


def _pool(table: Table) -> PoolFacts:
    visibility: Any = table.text("visibility", choices=_choices(Visibility))
    regime: Any = table.text("eviction_regime", choices=_choices(EvictionRegime))
    amount: Any = table.text("eviction_amount", default=None, choices=("need", "shortfall"))
    return PoolFacts(
        visibility=visibility,
        eviction_regime=regime,
        eviction_amount=amount,
        policies=table.texts("policies"),
        num_reserved_blocks=table.integer("num_reserved_blocks", default=0, minimum=0),
        is_deduplicated=table.boolean("is_deduplicated"),
        lookup_unit_tokens=table.integer("lookup_unit_tokens", default=None, minimum=1),
        has_lookahead_hashes=table.boolean("has_lookahead_hashes", default=False),
        drops_block_with_eagle=table.boolean("drops_block_with_eagle", default=False),
        cached_answers=table.text("cached_answers"),
    )


def _groups(table: Table) -> GroupFacts:
    larger: Any = table.text("larger_block_hash", default=None, choices=("concatenation", "last"))
    return GroupFacts(
        larger_block_hash=larger,
        default_retention_interval=table.integer(
            "default_retention_interval", default=None, minimum=0
        ),
        rules=table.texts("rules", default=()),
    )


def _events(table: Table) -> EventFacts:
    encoding = table.text("encoding", choices=("none", "array", "map", "unknown"))
    return EventFacts(
        encoding=UNKNOWN if encoding == "unknown" else None if encoding == "none" else encoding,
        block_stored=table.texts("block_stored", default=()),
        block_removed=table.texts("block_removed", default=()),
        block_id=table.text("block_id"),
    )
