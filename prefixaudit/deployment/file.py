r"""Reads prefixaudit.toml. All keys are optional; paths are relative to the file.

    [model]
    path = "models/harbor"         # folder with config.json, tokenizer.json, chat template
    name = "harbor-8b-chat"        # identity of the base model; the log's own name wins
    revision = "5c1f…"             # revision or weight digest
    dtype = "bfloat16"             # as served; "auto" is not a dtype
    quantization = false           # false: known to be none
    kv_cache_dtype = "fp8_e4m3"
    kv_scales = "sha256:…"
    max_model_len = 32768
    chat_template = "chat.jinja"   # instead of the model folder's own

    config = { rope_scaling = … }  # keys of config.json as served, laid over the folder's

    [engine]
    name = "vllm"                  # `prefixaudit list engines`
    version = "0.33.0"
    block_size = 16
    hash_algorithm = "sha256"      # facts for exact hashes; checked by the engine's profile
    hash_seed = "0"
    eviction_policy = "lru"        # of a radix tree; default: the engine's own
    cache_generated = true         # do answers enter the pool? default: where the log has them
    settings = { enable_lora = true }  # the engine's options: see prefixaudit.deployment.settings

    [[server]]                     # one each, if there are several: prefixaudit.deployment.servers
    [[tier]]                       # stores, routers: see prefixaudit.deployment.tiers

    [hardware]                     # GPUs, price, the engine's start-up log: see
                                   # prefixaudit.deployment.hardware
    [rendering]                    # what the server does to a chat; default: the engine's way
    time_zone = "UTC"              # the server's, for templates that print the date
    null_content = "keep"          # null reaches the template; "drop": the key is left out; "empty"
    tool_arguments = "as-sent"     # or "object": the text that the model wrote is parsed
    content_parts = "auto"         # "as-sent", "join"; auto: joined where the template wants text
    part_separator = "\n"         # between joined parts

    [pool]                         # one of the three; none is an endless pool. Blocks that can hold
                                   # KV: the null block that vLLM counts too is left out
    capacity_blocks = 21400
    capacity_tokens = 342400
    capacity_gib = 83.6            # GiB of KV; needs a model

    [identity]                     # what every request has unless the log says otherwise:
    lora_name = false              # any field of the identity, text or false (known to be absent)

    [tenant]
    source = "header:x-tenant-id"  # or "field:metadata.team", "api-key" (a digest), "log"; or a
                                   # list of these: the first that a request has wins

    [trust_domains]                # tenants that may observe each other's reuse; others are alone
    group = ["acme", "bob"]

    [adapters]                     # see prefixaudit.deployment.adapters
    legal = "/adapters/legal-v1"

    [[public_prefixes]]            # see prefixaudit.deployment.public
    text_file = "prompts/support.txt"

    [events]                       # what happened to the servers; see prefixaudit.deployment.events
    path = "events.jsonl"          # or a list

    [audit]                        # what fails a gate, and
    [budgets]                      # bounds on its figures: see prefixaudit.deployment.policy

All problems of a file are reported at once, with their lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.adapters import adapters_of, read_adapters
from prefixaudit.deployment.events import read_events
from prefixaudit.deployment.hardware import HardwareFacts, read_hardware
from prefixaudit.deployment.model_table import (
    read_identity,
    read_model,
    read_model_config_table,
)
from prefixaudit.deployment.policy import read_policy
from prefixaudit.deployment.public import read_public_prefixes
from prefixaudit.deployment.servers import (
    Defaults,
    Server,
    agreed,
    only_server,
    own_pools,
    read_capacity,
    read_servers,
)
from prefixaudit.deployment.settings import read_settings
from prefixaudit.deployment.tenant import TenantRule, source_problem
from prefixaudit.deployment.tiers import read_tiers
from prefixaudit.deployment.value import Deployment, Rendering
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.tables import Table, TomlDocument

if TYPE_CHECKING:
    from prefixaudit.core.engine import EngineProfile

_SERVER_RULES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "null_content": ("keep", "drop", "empty"),
    "tool_arguments": ("as-sent", "object"),
    "content_parts": ("auto", "as-sent", "join"),
    "part_separator": None,
}


def _profile(name: str) -> EngineProfile:
    from prefixaudit.engines import load_profile

    return load_profile(name)


def read_file(path: Path) -> Deployment:
    """Return the deployment of a file. Raises ConfigurationError with all its problems."""
    return read_document(TomlDocument.read(path), path)


def read_document(
    document: TomlDocument, path: Path, locations: Mapping[str, Location] | None = None
) -> Deployment:
    """Return the deployment of a parsed file at `path`. Raises ConfigurationError.

    `locations` says where servers and tiers stand that come from other files, by name.
    """
    root = document.root
    folder = path.parent
    model_table, engine_table = root.table("model"), root.table("engine")
    model, identity = read_model(model_table, folder)
    config = read_model_config_table(model_table)
    identity = identity.filled(read_identity(root.table("identity"), identity))
    engine = _read_engine(engine_table)
    settings = read_settings(engine_table.table("settings"))
    rendering = _read_rendering(root.table("rendering"))
    hardware = read_hardware(root.table("hardware"), folder)
    capacity = read_capacity(root.table("pool"))
    tenant_rule = _read_tenant(root.table("tenant"))
    domains = _read_trust_domains(root.table("trust_domains")) if "trust_domains" in root else None
    adapters = read_adapters(root.table("adapters")) if "adapters" in root else None
    public_prefixes = read_public_prefixes(root.tables("public_prefixes"), folder)
    event_files = _read_event_files(root.table("events"), folder)
    policy = read_policy(root.table("audit"), root.table("budgets"))
    defaults = Defaults(
        engine=engine["engine"],
        engine_name=engine_table.data.get("name"),
        engine_version=engine_table.data.get("version"),
        block_size=engine["block_size"],
        capacity=capacity,
        identity=identity,
        model_dir=model["model_dir"],
        max_model_len=model["max_model_len"],
        config=config,
        settings=settings,
    )
    servers: tuple[Server, ...] = ()
    if "server" in root:
        servers = read_servers(root.tables("server"), defaults, folder, locations or {})
    elif settings or config or "tier" in root:
        line = document.line(("engine",)) or 0
        servers = (only_server(defaults, Location(path=document.source, line=line)),)
    tiers = read_tiers(root.tables("tier"), servers, locations or {})
    document.finish()
    deployment = Deployment(
        path=path,
        identity=identity,
        rendering=rendering,
        hardware=None if hardware == HardwareFacts() else hardware,
        capacity=capacity,
        tenant_rule=tenant_rule,
        trust_domains=domains,
        adapters=adapters if adapters is not None else adapters_of([s.facts for s in servers]),
        public_prefixes=public_prefixes,
        timeline=read_events(event_files) if event_files else None,
        servers=tuple(server.facts for server in servers),
        tiers=(*own_pools(servers), *tiers),
        config=config,
        policy=policy,
        **model,
        **engine,
    )
    return _as_its_servers(deployment, servers) if servers else deployment


def _as_its_servers(deployment: Deployment, servers: Sequence[Server]) -> Deployment:
    """Take for the whole deployment what all of its servers agree on; one server is all of it."""
    first = servers[0]
    changes: dict[str, Any] = {}
    engine = agreed(servers)
    if engine is not None:
        changes["engine"] = engine
    if all(server.model_dir == first.model_dir for server in servers):
        changes["model_dir"] = first.model_dir
    if all(server.block_size == first.block_size for server in servers):
        changes["block_size"] = first.block_size
    if len(servers) == 1:
        changes["identity"] = first.facts.identity.filled(deployment.identity)
        changes["capacity"] = first.capacity
        changes["max_model_len"] = first.facts.max_model_len
        changes["config"] = first.config
    return replace(deployment, **changes)


def _read_engine(table: Table) -> dict[str, Any]:
    name = table.text("name", default=None)
    version = table.text("version", default=None)
    profile = None
    if name is not None:
        try:
            profile = _profile(name if version is None else f"{name}@{version}")
        except (UsageError, ConfigurationError) as error:
            key = "name" if str(error).startswith("unknown engine") else "version"
            table.problem(key if key in table else "name", str(error))
    elif version is not None:
        table.problem("version", "is given without a name")
    settings = {
        key: value
        for key in ("hash_algorithm", "hash_seed", "eviction_policy")
        if (value := table.text(key, default=None)) is not None
    }
    return {
        "engine": profile,
        "engine_settings": settings,
        "block_size": table.integer("block_size", default=None, minimum=1, maximum=1 << 20),
        "cache_generated": table.boolean("cache_generated", default=None),
    }


def _read_rendering(table: Table) -> Rendering:
    import zoneinfo

    time_zone = table.text("time_zone", default="UTC")
    try:
        zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        table.problem("time_zone", f"unknown time zone '{time_zone}'; expected an IANA name")
    rules = {
        key: value
        for key, choices in _SERVER_RULES.items()
        if (value := table.text(key, default=None, choices=choices)) is not None
    }
    return Rendering(time_zone=time_zone, server_rules=rules)


def _read_tenant(table: Table) -> TenantRule | None:
    value = table.any_value("source", default=None)
    if value is None:
        return None
    sources = [value] if isinstance(value, str) else value
    if not isinstance(sources, list) or not all(isinstance(item, str) for item in sources):
        table.problem("source", "is no tenant source; expected a text or a list of texts")
        return None
    for source in sources:
        if problem := source_problem(source):
            table.problem("source", problem)
    return TenantRule(sources=tuple(sources))


def _read_trust_domains(table: Table) -> Mapping[str, str]:
    table.allow_any_keys()
    domain_of: dict[str, str] = {}
    for domain in table:
        for tenant in table.texts(domain, default=()):
            if domain_of.setdefault(tenant, domain) != domain:
                table.problem(domain, f"'{tenant}' is also in '{domain_of[tenant]}'")
    return domain_of


def _read_event_files(table: Table, folder: Path) -> tuple[Path, ...]:
    names = table.any_value("path", default=[])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        table.problem("path", "is no path; expected a text or a list of texts")
        return ()
    return tuple(folder / name for name in names)
