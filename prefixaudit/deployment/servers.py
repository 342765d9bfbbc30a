r"""Reads [[server]] tables: the servers of a deployment with several, each in few lines.

    [[server]]
    name = "chat-a"                # default: server-1, server-2 …
    engine = "vllm"                # what a server doesn't say, [engine], [model] and [pool] say
    version = "0.10.2"
    block_size = 16
    capacity_blocks = 21400        # or capacity_tokens, capacity_gib
    match = { source = "field:node", values = ["n1"] }   # its requests, by field or header of the
                                   # log; values: by default its name

    [server.model]                 # the keys of [model]; and
    config = { rope_scaling = { rope_type = "yarn", factor = 4.0 } }   # keys of config.json as
                                   # served, laid over those of the model folder
    [server.identity]              # the keys of [identity]
    [server.settings]              # the engine's options, with `_`: see deployment.settings;
    enable_lora = true             # false: known to be off or unset; not there: unknown

A file with one engine writes `[engine.settings]` and `[model.config]` instead. `facts_of` gives
the servers and their own pools as the audit sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prefixaudit.core.audit import ServerFacts, Setting, TierFacts
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.finding import Location
from prefixaudit.core.identity import Identity
from prefixaudit.core.unknown import Known
from prefixaudit.deployment.blocks import kv_bytes, prefix_block_bytes, raised_block_size
from prefixaudit.deployment.model_folder import model_identity, read_model_config
from prefixaudit.deployment.model_table import (
    read_identity,
    read_model,
    read_model_config_table,
)
from prefixaudit.deployment.server_identity import (
    comparable,
    config_overrides,
    identity_from_settings,
    laid_over,
    standardised,
)
from prefixaudit.deployment.settings import read_settings
from prefixaudit.deployment.tenant import source_problem
from prefixaudit.deployment.value import Capacity
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.tables import Table

if TYPE_CHECKING:
    from prefixaudit.core.model import CacheSpec, ModelSpec

_CAPACITY_KEYS: Final = ("capacity_blocks", "capacity_tokens", "capacity_gib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server as its table says it, with what the whole file's defaults add.

    `config` is laid over the folder's config.json. `model_dir` and `cache` are None where the model
    isn't known.
    """

    facts: ServerFacts
    model_dir: Path | None
    config: Mapping[str, Any]
    block_size: int | None
    capacity: Capacity | None
    cache: CacheSpec | None

    @property
    def kv_bytes_per_token(self) -> int | None:
        return kv_bytes(self.cache, self.facts.identity)

    @property
    def tensor_parallel(self) -> int:
        size = self.facts.settings.get("tensor_parallel_size", 1)
        return size if type(size) is int and size > 0 else 1

    @property
    def pool_block_size(self) -> int | None:
        """Return the block size of the server's own pool, None where nobody knows it."""
        engine = self.facts.engine
        if self.block_size is not None or engine is None:
            return self.block_size
        return raised_block_size(
            self.cache,
            engine,
            self.facts.identity,
            block_size=engine.default_block_size,
            tensor_parallel=self.tensor_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What [engine], [model], [identity] and [pool] say, for servers that don't."""

    engine: EngineProfile | None
    engine_name: str | None
    engine_version: str | None
    block_size: int | None
    capacity: Capacity | None
    identity: Identity
    model_dir: Path | None
    max_model_len: int | None
    config: Mapping[str, Any]
    settings: Mapping[str, Known[Setting]]


def read_servers(
    tables: Sequence[Table],
    defaults: Defaults,
    folder: Path,
    locations: Mapping[str, Location],
) -> tuple[Server, ...]:
    """Read the [[server]] tables; problems are noted in their document.

    `locations` says where the servers stand that were read from other files than the document.
    """
    servers: list[Server] = []
    names: set[str] = set()
    for number, table in enumerate(tables, start=1):
        server = _server(table, number, defaults, folder, locations)
        if server.facts.name in names:
            table.problem("name", f"'{server.facts.name}' is the name of another server too")
        names.add(server.facts.name)
        servers.append(server)
    identities = comparable([server.facts.identity for server in servers])
    return tuple(
        replace(server, facts=replace(server.facts, identity=identity))
        for server, identity in zip(servers, identities, strict=True)
    )


def only_server(defaults: Defaults, location: Location | None) -> Server:
    """Return the server of a file without [[server]] tables."""
    return _completed(
        name="server",
        engine=defaults.engine,
        identity=defaults.identity,
        settings=defaults.settings,
        model_dir=defaults.model_dir,
        config=defaults.config,
        max_model_len=defaults.max_model_len,
        block_size=defaults.block_size,
        capacity=defaults.capacity,
        matches=(),
        location=location,
    )


def own_pools(servers: Sequence[Server]) -> tuple[TierFacts, ...]:
    """Return the servers' own pools; those of equal engine, version and size are one tier.

    A server whose engine or block size isn't known has none here.
    """
    groups: dict[tuple[object, ...], list[Server]] = {}
    for server in servers:
        engine = server.facts.engine
        if engine is None or not engine.tiers or engine.tiers[0].kind != "local-pool":
            continue
        key = (engine.name, engine.version, server.pool_block_size, server.capacity)
        groups.setdefault(key, []).append(server)
    tiers = []
    for members in groups.values():
        first = members[0]
        engine, size = first.facts.engine, first.pool_block_size
        assert engine is not None
        assert size is not None
        names = tuple(server.facts.name for server in members)
        blocks = None
        if first.capacity is not None:
            block_bytes = prefix_block_bytes(
                first.cache,
                engine,
                first.facts.identity,
                block_size=size,
                tensor_parallel=first.tensor_parallel,
            )
            blocks = first.capacity.in_blocks(size, block_bytes)
        tiers.append(
            TierFacts(
                name=engine.tiers[0].name
                if len(groups) == 1
                else f"{engine.tiers[0].name} of {', '.join(names)}",
                profile=engine,
                tier=engine.tiers[0],
                block_size=size,
                servers=names,
                capacity_blocks=blocks,
                settings=first.facts.settings,
                location=first.facts.location,
            )
        )
    return tuple(tiers)


def _server(
    table: Table,
    number: int,
    defaults: Defaults,
    folder: Path,
    locations: Mapping[str, Location],
) -> Server:
    name = table.text("name", default=f"server-{number}")
    model_table = table.table("model")
    model, identity = read_model(model_table, folder)
    identity = identity.filled(read_identity(table.table("identity"), identity))
    line = table.document.line(table.path)
    return _completed(
        name=name,
        engine=_engine(table, defaults),
        identity=standardised(identity).filled(defaults.identity),
        settings={**defaults.settings, **read_settings(table.table("settings"))},
        model_dir=model["model_dir"] or defaults.model_dir,
        config=laid_over(defaults.config, read_model_config_table(model_table)),
        max_model_len=model["max_model_len"] or defaults.max_model_len,
        block_size=table.integer("block_size", default=None, minimum=1, maximum=1 << 20)
        or defaults.block_size,
        capacity=read_capacity(table) or defaults.capacity,
        matches=_matches(table, name),
        location=locations.get(name) or Location(path=table.document.source, line=line or 0),
    )


def _engine(table: Table, defaults: Defaults) -> EngineProfile | None:
    from prefixaudit.engines import load_profile

    name = table.text("engine", default=defaults.engine_name)
    own = name == defaults.engine_name or name is None
    version = table.text("version", default=defaults.engine_version if own else None)
    if name is None:
        if "version" in table:
            table.problem("version", "is given without an engine")
        return None
    try:
        return load_profile(name if version is None else f"{name}@{version}")
    except (UsageError, ConfigurationError) as error:
        is_name = str(error).startswith("unknown engine")
        table.problem("engine" if is_name or "version" not in table else "version", str(error))
        return None


def read_capacity(table: Table) -> Capacity | None:
    """Return capacity_blocks, capacity_tokens or capacity_gib of a table, None without one."""
    values: dict[str, float | None] = {
        "blocks": table.integer("capacity_blocks", default=None, minimum=0),
        "tokens": table.integer("capacity_tokens", default=None, minimum=0),
        "gib": table.number("capacity_gib", default=None, minimum=0),
    }
    given = [key for key in _CAPACITY_KEYS if key in table]
    for key in given[1:]:
        table.problem(key, f"is given beside {given[0]}; give one")
    if (blocks := values["blocks"]) is not None:
        return Capacity(amount=blocks, unit="blocks")
    if (tokens := values["tokens"]) is not None:
        return Capacity(amount=tokens, unit="tokens")
    gib = values["gib"]
    return None if gib is None else Capacity(amount=gib, unit="gib")


def _matches(table: Table, name: str) -> tuple[tuple[str, str], ...]:
    if "match" not in table:
        return ()
    match = table.table("match")
    source = match.text("source")
    if problem := source_problem(source):
        match.problem("source", problem)
    return tuple((source, value) for value in match.texts("values", default=(name,)))


def _completed(
    *,
    name: str,
    engine: EngineProfile | None,
    identity: Identity,
    settings: Mapping[str, Known[Setting]],
    model_dir: Path | None,
    config: Mapping[str, Any],
    max_model_len: int | None,
    block_size: int | None,
    capacity: Capacity | None,
    matches: tuple[tuple[str, str], ...],
    location: Location | None,
) -> Server:
    """Put a server together: what the model folder and the settings say of its identity."""
    overrides = config_overrides(settings)
    full = _model_config(model_dir, laid_over(config, overrides))
    if full is None and config:
        full = laid_over(config, overrides)
    spec = _spec(full)
    if spec is not None:
        identity = identity.filled(model_identity(spec))
    identity = identity.filled(identity_from_settings(identity, settings, overrides))
    length = settings.get("max_model_len")
    if max_model_len is None and isinstance(length, int):
        max_model_len = length
    return Server(
        facts=ServerFacts(
            name=name,
            engine=engine,
            identity=identity,
            settings=dict(settings),
            model_config=full,
            max_model_len=max_model_len,
            matches=matches,
            location=location,
        ),
        model_dir=model_dir,
        config=laid_over(config, overrides),
        block_size=block_size,
        capacity=capacity,
        cache=None if spec is None else spec.cache,
    )


def _model_config(folder: Path | None, overrides: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if folder is None or not folder.is_dir():
        return None
    config = read_model_config(folder)
    return None if config is None else laid_over(config, overrides)


def _spec(config: Mapping[str, Any] | None) -> ModelSpec | None:
    if config is None:
        return None
    from prefixaudit.families import describe

    try:
        return describe(config)
    except ConfigurationError:
        return None  # a part of a config.json, or a type that no family knows


def agreed(servers: Iterable[Server]) -> EngineProfile | None:
    """Return the engine that all servers run in one version, None where they differ."""
    engines = {
        None if engine is None else (engine.name, engine.version): engine
        for engine in (server.facts.engine for server in servers)
    }
    return next(iter(engines.values())) if len(engines) == 1 else None
