"""What is deployed, as a value; and how it completes a request's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prefixaudit.core.identity import UNKNOWN_IDENTITY, Identity
from prefixaudit.core.request import Request
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.deployment.policy import AuditPolicy
from prefixaudit.deployment.tenant import TenantRule

if TYPE_CHECKING:  # a log without a model or an engine does without them
    from prefixaudit.core.audit import AdapterFacts, ServerFacts, TierFacts
    from prefixaudit.core.engine import EngineProfile
    from prefixaudit.core.model import CacheSpec, ModelSpec
    from prefixaudit.core.trace_batch import TraceBatch
    from prefixaudit.cost.engine_log import EngineLog
    from prefixaudit.cost.time import MeasuredPrefill
    from prefixaudit.deployment.events import Timeline
    from prefixaudit.deployment.hardware import HardwareFacts
    from prefixaudit.deployment.public import PublicPrefix

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The pool's size in one of three units."""

    amount: float
    unit: Literal["blocks", "tokens", "gib"]

    def in_blocks(self, block_size: int, block_bytes: int | None) -> int | None:
        """Return whole blocks; None where the unit is GiB and a block's bytes aren't known."""
        if self.unit == "blocks":
            return int(self.amount)
        if self.unit == "tokens":
            return int(self.amount) // block_size
        if not block_bytes:
            return None
        return int(self.amount * GIB // block_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What the server does when it renders a chat, where the file says so.

    `time_zone` is the server's (IANA name). `server_rules` replaces rules of the engine's server by
    name: null_content, tool_arguments, content_parts, part_separator (see prompts.ServerRules).
    """

    time_zone: str = "UTC"
    server_rules: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Settings given as options; they win over the file. None is: not given."""

    model_dir: Path | None = None
    engine: str | None = None
    block_size: int | None = None
    capacity_blocks: int | None = None
    capacity_gib: float | None = None
    chat_template: Path | None = None
    gpu: str | None = None
    tensor_parallel: int | None = None
    memory_share: float | None = None
    usd_per_gpu_hour: float | None = None
    measured: MeasuredPrefill | None = None
    efficiency: tuple[float, float] | None = None
    engine_log: EngineLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Model, engine, pool and identity of what serves the log's requests.

    `path` is the file that it was read from; None for options alone. `model_problem` says why a
    model folder gives no `model` (no config.json, unknown type); `explicit_cache` is what a file of
    unknown type says of its KV by itself. `hardware` is None where nobody said anything of it, and
    holds for each server. `block_size` is None where
    neither the file nor the options name it (the engine's default applies, or the trace's own).
    `identity` holds the deployment's facts; its fields are UNKNOWN where nothing is said.
    `adapters` are those that requests name as if they were models; None where nobody listed them.
    `servers` and `tiers` (the servers' own pools first) are empty where the file describes one
    server in [engine] and [model]. `config` is laid over the model folder's config.json.
    `not_understood` says what deployment files hold that could matter and couldn't be read.
    """

    path: Path | None = None
    model_dir: Path | None = None
    model: ModelSpec | None = None
    model_problem: str | None = None
    explicit_cache: CacheSpec | None = None
    hardware: HardwareFacts | None = None
    max_model_len: int | None = None
    chat_template: Path | None = None
    rendering: Rendering = field(default_factory=Rendering)
    engine: EngineProfile | None = None
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    block_size: int | None = None
    capacity: Capacity | None = None
    cache_generated: bool | None = None
    identity: Identity = UNKNOWN_IDENTITY
    tenant_rule: TenantRule | None = None
    trust_domains: Mapping[str, str] | None = None
    adapters: tuple[AdapterFacts, ...] | None = None
    servers: tuple[ServerFacts, ...] = ()
    tiers: tuple[TierFacts, ...] = ()
    timeline: Timeline | None = None
    public_prefixes: tuple[PublicPrefix, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    policy: AuditPolicy = field(default_factory=AuditPolicy)
    not_understood: tuple[str, ...] = ()
    _filled: dict[tuple[int, str | Unknown], tuple[Identity, Identity]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def cache(self) -> CacheSpec | None:
        """Return what the model keeps of tokens and sequences, None where it isn't known."""
        return self.explicit_cache if self.model is None else self.model.cache

    @property
    def tensor_parallel(self) -> int:
        """Return the GPUs that share a server's model; 1 where nobody said it or servers differ."""
        if self.hardware is not None and self.hardware.tensor_parallel is not None:
            return self.hardware.tensor_parallel
        sizes = {server.settings.get("tensor_parallel_size", 1) for server in self.servers}
        size = sizes.pop() if len(sizes) == 1 else 1
        return size if type(size) is int and size > 0 else 1

    @property
    def memory_share(self) -> float | None:
        """Return the share of the GPU's memory that a server takes, None: the engine's default."""
        if self.hardware is not None and self.hardware.memory_share is not None:
            return self.hardware.memory_share
        shares = {server.settings.get("gpu_memory_utilization") for server in self.servers}
        share = shares.pop() if len(shares) == 1 else None
        return share if isinstance(share, float) else None

    def complete(self, request: Request) -> Request:
        """Return the request with its identity filled from this deployment and `record` dropped.

        What the log says wins over the deployment's defaults, but the tenant rule wins over what
        the log format calls the tenant. What nobody knows stays UNKNOWN.
        """
        identity = request.identity
        if self.tenant_rule is not None:
            tenant = self.tenant_rule.tenant(request)
            if tenant is not UNKNOWN and tenant != identity.tenant:
                identity = replace(identity, tenant=tenant)
        server = self._server_of(request) if self.servers else request.server
        filled = self._fill(identity, server)
        if self.timeline is not None:
            filled = self.timeline.complete(filled, request.arrival_s, server)
        if filled is request.identity and request.record is None and server is request.server:
            return request
        return replace(request, identity=filled, server=server, record=None)

    def complete_batch(self, batch: TraceBatch) -> TraceBatch | None:
        """Return the batch as `complete` would leave its requests.

        None where they have to be looked at one by one: for tenant, server or time.
        """
        if self.tenant_rule is not None or self.servers or self.timeline is not None:
            return None
        return replace(batch, identity=self._fill(batch.identity, UNKNOWN))

    def _server_of(self, request: Request) -> str | Unknown:
        """Return the server that the request's fields, headers or model name, else the only one."""
        values: dict[str, object] = {}
        for server in self.servers:
            for source, value in server.matches:
                if source not in values:
                    values[source] = TenantRule(sources=(source,)).tenant(request)
                if values[source] == value:
                    return server.name
        if len(self.servers) == 1:
            return self.servers[0].name
        # Servers that are told from each other by the names they serve their models under.
        model = request.identity.model
        named = [server.name for server in self.servers if model in _served_names(server)]
        return named[0] if len(named) == 1 else UNKNOWN

    def _fill(self, identity: Identity, server: str | Unknown) -> Identity:
        if (
            self.trust_domains is None
            and (self.identity is UNKNOWN_IDENTITY or self.identity == UNKNOWN_IDENTITY)
            and self.adapters is None
            and not self.servers
            and not (isinstance(identity.lora_name, str) and identity.lora_name == identity.model)
        ):
            return identity
        # Readers give many requests one identity object: what it becomes is kept by its address,
        # together with the object itself, so that the address stays taken.
        key = (id(identity), server)
        known = self._filled.get(key)
        if known is not None:
            return known[1]
        filled = self._with_base_model(self._with_adapter(identity), server)
        for facts in self.servers:
            if facts.name == server:
                filled = filled.filled(facts.identity)
        filled = filled.filled(self.identity)
        if self.trust_domains is not None and filled.trust_domain is UNKNOWN:
            tenant = filled.tenant
            if isinstance(tenant, str):
                # A tenant that no domain names is a domain of its own.
                filled = replace(filled, trust_domain=self.trust_domains.get(tenant, tenant))
        if len(self._filled) >= 4096:
            self._filled.clear()
        self._filled[key] = (identity, filled)
        return filled

    def _with_base_model(self, identity: Identity, server: str | Unknown) -> Identity:
        """Replace the name that a model is served under by that of the model itself.

        Where the server isn't known, all that serve the name have to agree.
        """
        models = {
            facts.identity.model
            for facts in self.servers
            if facts.name == server
            or (server is UNKNOWN and identity.model in _served_names(facts))
        }
        names = {
            name
            for facts in self.servers
            if server in (UNKNOWN, facts.name)
            for name in _served_names(facts)
        }
        if identity.model not in names or len(models) != 1:
            return identity
        [model] = models
        return replace(identity, model=model) if isinstance(model, str) else identity

    def _with_adapter(self, identity: Identity) -> Identity:
        """Tell an adapter's name from its base model's: requests give either as the model.

        Where the adapters are listed and a request names none of them, it has none.
        """
        if identity.lora_name is UNKNOWN and isinstance(identity.model, str):
            names = {adapter.name: adapter for adapter in self.adapters or ()}
            adapter = names.get(identity.model)
            if adapter is not None:
                identity = replace(identity, lora_name=adapter.name)
            elif self.adapters is not None:
                identity = replace(identity, lora_name=None)
        if identity.lora_name is None:
            return identity.filled(Identity(lora_revision=None, lora_path=None))
        for adapter in self.adapters or ():
            if adapter.name == identity.lora_name:
                facts = Identity(lora_path=adapter.path, lora_revision=adapter.revision)
                identity = identity.filled(facts)
        if isinstance(identity.lora_name, str) and identity.model == identity.lora_name:
            identity = replace(identity, model=UNKNOWN)
        return identity


def _served_names(server: ServerFacts) -> tuple[str, ...]:
    """Return the names that requests use for a server's base model, as far as they are known."""
    names = server.settings.get("served_model_name", UNKNOWN)
    if isinstance(names, tuple):
        return names
    model = server.identity.model
    return (model,) if names is None and isinstance(model, str) else ()
