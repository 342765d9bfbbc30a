"""What is deployed, as a value; and how it completes a request's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prefixaudit.core.identity import Identity
from prefixaudit.core.request import Request
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment.tenant import TenantRule

if TYPE_CHECKING:  # a log without a model or an engine does without them
    from prefixaudit.core.engine import EngineProfile
    from prefixaudit.core.model import ModelSpec

GIB = 2**30
_NOTHING_KNOWN = Identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The pool's size in one of three units."""

    amount: float
    unit: Literal["blocks", "tokens", "gib"]

    def in_blocks(self, block_size: int, kv_bytes_per_token: int | None) -> int | None:
        """Return whole blocks; None where the unit is GiB and the bytes per token aren't known."""
        if self.unit == "blocks":
            return int(self.amount)
        if self.unit == "tokens":
            return int(self.amount) // block_size
        if not kv_bytes_per_token:
            return None
        return int(self.amount * GIB // (kv_bytes_per_token * block_size))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Model, engine, pool and identity of what serves the log's requests.

    `path` is the file that it was read from; None for options alone. `model_problem` says why a
    model folder gives no `model` (no config.json, unknown type). `block_size` is None where
    neither the file nor the options name it (the engine's default applies, or the trace's own).
    `identity` holds the deployment's facts; its fields are UNKNOWN where nothing is said.
    """

    path: Path | None = None
    model_dir: Path | None = None
    model: ModelSpec | None = None
    model_problem: str | None = None
    max_model_len: int | None = None
    chat_template: Path | None = None
    rendering: Rendering = field(default_factory=Rendering)
    engine: EngineProfile | None = None
    engine_settings: Mapping[str, str] = field(default_factory=dict)
    block_size: int | None = None
    capacity: Capacity | None = None
    cache_generated: bool | None = None
    identity: Identity = field(default_factory=Identity)
    tenant_rule: TenantRule | None = None
    trust_domains: Mapping[str, str] | None = None
    _filled: dict[int, tuple[Identity, Identity]] = field(
        default_factory=dict, repr=False, compare=False
    )

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
        filled = self._fill(identity)
        if filled is request.identity and request.record is None:
            return request
        return replace(request, identity=filled, record=None)

    def _fill(self, identity: Identity) -> Identity:
        if self.trust_domains is None and self.identity == _NOTHING_KNOWN:
            return identity
        # Readers give many requests one identity object: what it becomes is kept by its address,
        # together with the object itself, so that the address stays taken.
        known = self._filled.get(id(identity))
        if known is not None:
            return known[1]
        filled = identity.filled(self.identity)
        if self.trust_domains is not None and filled.trust_domain is UNKNOWN:
            tenant = filled.tenant
            if isinstance(tenant, str):
                # A tenant that no domain names is a domain of its own.
                filled = replace(filled, trust_domain=self.trust_domains.get(tenant, tenant))
        if len(self._filled) >= 4096:
            self._filled.clear()
        self._filled[id(identity)] = (identity, filled)
        return filled
