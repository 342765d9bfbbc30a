r"""Reads [[tier]] tables: places beyond a server's own pool that keep or index blocks.

[[tier]]
name = "shared store"          # default: its kind
kind = "lmcache"               # see KINDS; or "ENGINE:TIER" of an engine profile
version = "0.3.15"             # of the store's own software, where it has one
servers = ["chat-a", "chat-b"] # who shares it; default: all
path = "/mnt/kv"               # folder, address or id that makes it one store
block_size = 256               # default: the profile's, or the servers'
capacity_blocks = 100000       # or capacity_tokens; default: no limit

[tier.settings]                # the store's options, with `_`
pre_caching_hash_algorithm = "sha256_cbor"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.version import InvalidVersion, Version

from prefixaudit.core.audit import TierFacts
from prefixaudit.core.engine import EngineProfile, Tier
from prefixaudit.core.finding import Location
from prefixaudit.deployment.servers import Server, read_capacity
from prefixaudit.deployment.settings import read_settings
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class TierKind:
    """A kind by name: the profile and its tier; "" is the one of the servers' engine.

    `of_host_version`: the profile's version is that of the servers' engine.
    """

    profile: str
    tier: str
    of_host_version: bool = False


KINDS: Final[Mapping[str, TierKind]] = {
    "lmcache": TierKind(profile="lmcache", tier="in-process"),
    "lmcache-multiprocess": TierKind(profile="lmcache", tier="multiprocess"),
    "mooncake": TierKind(profile="mooncake", tier=""),
    "mooncake-conductor": TierKind(profile="mooncake", tier="conductor"),
    "vllm-file-tier": TierKind(profile="vllm-file-tier", tier="files", of_host_version=True),
    "sglang-hicache": TierKind(profile="sglang", tier="storage", of_host_version=True),
    "dynamo": TierKind(profile="dynamo", tier="router"),
    "llm-d": TierKind(profile="llm-d", tier="index"),
}


def read_tiers(
    tables: Sequence[Table], servers: Sequence[Server], locations: Mapping[str, Location]
) -> tuple[TierFacts, ...]:
    """Read the [[tier]] tables; problems are noted in their document."""
    tiers: list[TierFacts] = []
    names: set[str] = set()
    for table in tables:
        tier = _tier(table, servers, locations)
        if tier is None:
            continue
        if tier.name in names:
            table.problem("name", f"'{tier.name}' is the name of another tier too")
        names.add(tier.name)
        tiers.append(tier)
    return tuple(tiers)


def _tier(
    table: Table, servers: Sequence[Server], locations: Mapping[str, Location]
) -> TierFacts | None:
    kind_name = table.text("kind")
    name = table.text("name", default=kind_name)
    members = _members(table, servers)
    version = table.text("version", default=None)
    size = table.integer("block_size", default=None, minimum=1, maximum=1 << 20)
    capacity = read_capacity(table)
    path = table.text("path", default=None)
    settings = read_settings(table.table("settings"))
    if path is not None:
        settings.setdefault("path", path)
    host = _weakest_host(members)
    try:
        profile, tier = _profile(kind_name, version, host)
    except UsageError as error:
        key = "version" if version is not None and "version" in str(error) else "kind"
        table.problem(key, str(error))
        return None
    if size is None:
        size = _block_size(profile, members)
    blocks = None
    if capacity is not None:
        sizes = {server.kv_bytes_per_token for server in members}
        per_token = sizes.pop() if len(sizes) == 1 else None
        blocks = capacity.in_blocks(size, None if per_token is None else per_token * size)
        if blocks is None:
            table.problem(
                "capacity_gib",
                "the KV bytes of a token aren't known or differ between the servers; "
                "give capacity_tokens",
            )
    line = table.document.line(table.path)
    return TierFacts(
        name=name,
        profile=profile,
        tier=tier,
        block_size=size,
        servers=tuple(server.facts.name for server in members),
        capacity_blocks=blocks,
        settings=settings,
        location=locations.get(name) or Location(path=table.document.source, line=line or 0),
    )


def _members(table: Table, servers: Sequence[Server]) -> list[Server]:
    by_name = {server.facts.name: server for server in servers}
    wanted = table.texts("servers", default=tuple(by_name))
    for name in wanted:
        if name not in by_name:
            table.problem("servers", unknown_name("server", name, by_name))
    return [by_name[name] for name in wanted if name in by_name]


def _weakest_host(members: Sequence[Server]) -> EngineProfile | None:
    """Return the members' engine whose key holds least (then the oldest), None without one.

    Members of different releases share the blocks whose keys come out equal; with the weakest key
    no sharing is missed.
    """
    engines = [server.facts.engine for server in members if server.facts.engine is not None]
    return min(engines, key=_strength, default=None)


def _strength(engine: EngineProfile) -> tuple[int, Version]:
    try:
        version = Version(engine.version) if engine.version is not None else Version("9999")
    except InvalidVersion:
        version = Version("9999")
    return len(engine.key_fields), version


def _profile(
    kind_name: str, version: str | None, host: EngineProfile | None
) -> tuple[EngineProfile, Tier]:
    from prefixaudit.engines import load_profile

    profile_name, separator, tier_name = kind_name.partition(":")
    kind = KINDS.get(kind_name)
    if kind is None and not separator:
        raise UsageError(unknown_name("tier kind", kind_name, KINDS))
    if kind is None:
        kind = TierKind(profile=profile_name, tier=tier_name)
    if version is None and kind.of_host_version and host is not None:
        version = host.version
    spec = kind.profile if version is None else f"{kind.profile}@{version}"
    chain_host = host if host is not None and host.name in ("vllm", "sglang") else None
    profile = load_profile(spec, host=chain_host)
    wanted = kind.tier
    if not wanted:
        wanted = host.name if host is not None else profile.tiers[0].name
    tier = profile.tier(wanted)
    if tier is None:
        known = [tier.name for tier in profile.tiers]
        raise UsageError(unknown_name(f"tier of {profile.name}", wanted, known))
    return profile, tier


def _block_size(profile: EngineProfile, members: Sequence[Server]) -> int:
    """Return the servers' block where the store keeps their blocks, else the store's own unit."""
    sizes = [size for server in members if (size := server.pool_block_size) is not None]
    if profile.name == "lmcache" or not sizes:
        return profile.default_block_size
    return max(sizes)
