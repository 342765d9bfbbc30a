"""Facts of a server by name: settings, identity, and what follows from its model and tiers.

Every setting of a server is a fact under its name, every identity field too. Further ones:

engine_version      the release
connectors          KV connectors, those inside a MultiConnector too
enable_lora         also where adapters are listed
enable_prompt_embeds  also where the identity says that no request has any
hash_algorithm      the option, or the only algorithm that the release has
hash_seed           PYTHONHASHSEED
serves_media        the model takes images, audio or video, and they aren't refused
has_tenants         several tenants (of several trust domains, in a log) are served
stores              external stores that the server shares: "lmcache", "lmcache/in-process" …
routers             router indexes that it stands behind, in the same form
is_recurrent        some layers keep a state of constant size (Mamba, gated delta …)
rope_type           of the position encoding that depends on length, else of any
length_rule         what the KV of a prefix depends on beside tokens (see cost.position)
position_regime     "short" or "long" where the factors are chosen by the served length
dual_chunk          digest of dual_chunk_attention_config, absent without one
fp8_kv              KV is kept in fp8
event_encoding      "array" or "map": how the release publishes block events
block_size          tokens of a block in the server's own pool

What isn't known is UNKNOWN. The stores and routers are those that the deployment names: a store
that it leaves out can't be audited, and isn't one that is unknown here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prefixaudit.core.audit import AuditSubject, ServerFacts, Setting, TierFacts
from prefixaudit.core.engine import TierKind
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.errors import ConfigurationError

if TYPE_CHECKING:  # most logs come without a model
    from prefixaudit.core.model import ModelSpec
    from prefixaudit.cost.position import LengthDependence

Fact: TypeAlias = Known[Setting]
_MEDIA_KEYS: Final = (
    "vision_config",
    "audio_config",
    "visual",
    "vision_tower",
    "mm_vision_tower",
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "audio_token_id",
    "speech_config",
)
# A model of the type whose tables depend on length wherever an engine lets them.
_LONGROPE: Final = {
    "model_type": "phi3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
}


def fact_of(name: str, server: ServerFacts, subject: AuditSubject) -> Fact:
    """Return a fact of a server; None is known to be absent, UNKNOWN isn't known."""
    derive = _DERIVED.get(name)
    if derive is not None:
        return derive(server, subject)
    if name in IDENTITY_FIELDS:
        value: Fact = getattr(server.identity, name)
        return server.settings.get(name, UNKNOWN) if value is UNKNOWN else value
    return server.settings.get(name, UNKNOWN)


def engine_of(server: ServerFacts) -> tuple[str | None, str | None]:
    """Return the name and version of a server's engine.

    An engine that has no profile is named by the settings `software` and `software_version`.
    """
    if server.engine is not None:
        return server.engine.name, server.engine.version
    name, version = (server.settings.get(key) for key in ("software", "software_version"))
    return name if isinstance(name, str) else None, version if isinstance(version, str) else None


def members_of(tier: TierFacts, subject: AuditSubject) -> tuple[ServerFacts, ...]:
    """Return the servers that share a tier."""
    return tuple(server for server in subject.servers if server.name in tier.servers)


def tier_names(tier: TierFacts) -> tuple[str, str]:
    """Return the two names by which rules ask for a tier: its profile's, and with its own."""
    return tier.profile.name, f"{tier.profile.name}/{tier.tier.name}"


def _tiers_of_kind(kind: TierKind) -> Callable[[ServerFacts, AuditSubject], Fact]:
    def names(server: ServerFacts, subject: AuditSubject) -> Fact:
        return tuple(
            name
            for tier in subject.tiers
            if tier.tier.kind == kind and server.name in tier.servers
            for name in tier_names(tier)
        )

    return names


def _first_known(server: ServerFacts, *names: str) -> Fact:
    values = (server.settings.get(name, UNKNOWN) for name in names)
    return next((value for value in values if value is not UNKNOWN), UNKNOWN)


def _engine_version(server: ServerFacts, subject: AuditSubject) -> Fact:
    version = engine_of(server)[1]
    return UNKNOWN if version is None else version


def _connectors(server: ServerFacts, subject: AuditSubject) -> Fact:
    one = server.settings.get("kv_connector", UNKNOWN)
    several = server.settings.get("kv_connectors", UNKNOWN)
    if one is UNKNOWN and several is UNKNOWN:
        return UNKNOWN
    inner = several if isinstance(several, tuple) else ()
    return (*([one] if isinstance(one, str) else []), *inner)


def _enable_lora(server: ServerFacts, subject: AuditSubject) -> Fact:
    value = server.settings.get("enable_lora", UNKNOWN)
    if value is UNKNOWN and (server.settings.get("lora_modules") or subject.adapters):
        return True
    return value


def _enable_prompt_embeds(server: ServerFacts, subject: AuditSubject) -> Fact:
    value = server.settings.get("enable_prompt_embeds", UNKNOWN)
    if value is UNKNOWN and server.identity.prompt_embeds is None:
        return False
    return value


def _hash_algorithm(server: ServerFacts, subject: AuditSubject) -> Fact:
    value = _first_known(server, "prefix_caching_hash_algo", "hash_algorithm")
    if isinstance(value, str):
        return value
    engine = server.engine
    facts = next((tier.hash for tier in engine.tiers if tier.hash), None) if engine else None
    if facts is None or engine is None or engine.version is None or not facts.algorithms:
        return UNKNOWN
    # Known to be unset: the release's default, which stands first.
    if value is None or len(facts.algorithms) == 1:
        return facts.algorithms[0]
    return UNKNOWN


def _serves_media(server: ServerFacts, subject: AuditSubject) -> Fact:
    given = server.settings.get("serves_media", UNKNOWN)
    if given is not UNKNOWN:
        return given
    if server.settings.get("language_model_only") is True:
        return False
    if server.model_config is None:
        return UNKNOWN
    return any(server.model_config.get(key) is not None for key in _MEDIA_KEYS)


def _has_tenants(server: ServerFacts, subject: AuditSubject) -> Fact:
    first: str | None = None
    for replay in subject.replays[:1]:
        for identity in replay.trace.identities:
            domain = identity.trust_domain
            owner = identity.tenant if domain is UNKNOWN else domain
            if not isinstance(owner, str):
                continue
            first = first or owner
            if owner != first:
                return True
    given = server.settings.get("has_tenants", UNKNOWN)
    return subject.has_tenants if given is UNKNOWN else given


def _spec(server: ServerFacts) -> ModelSpec | Unknown:
    if server.model_config is None:
        return UNKNOWN
    from prefixaudit.families import describe

    try:
        return describe(server.model_config)
    except ConfigurationError:
        return UNKNOWN  # a part of a config.json, or a type that no family describes


def _is_recurrent(server: ServerFacts, subject: AuditSubject) -> Fact:
    given = server.settings.get("is_recurrent", UNKNOWN)
    spec = _spec(server)
    if given is not UNKNOWN or spec is UNKNOWN:
        return given
    from prefixaudit.core.model import Attention, LatentAttention

    return any(
        not isinstance(mixer, Attention | LatentAttention)
        for layer in spec.layers
        for mixer in layer.mixers
    )


def _length(server: ServerFacts) -> LengthDependence | Unknown:
    spec = _spec(server)
    name, version = engine_of(server)
    if spec is UNKNOWN or name is None:
        return UNKNOWN
    from prefixaudit.cost.position import length_dependence

    return length_dependence(spec, engine=name, version=version, max_model_len=server.max_model_len)


def _rope(server: ServerFacts) -> Mapping[str, Any] | Unknown:
    """Return the rope scaling of a config.json that no family describes, {} for none."""
    if server.model_config is None:
        return UNKNOWN
    config = server.model_config
    text = config.get("text_config")
    for part in (config, text if isinstance(text, Mapping) else {}):
        for key in ("rope_parameters", "rope_scaling"):
            value = part.get(key)
            if isinstance(value, Mapping):
                return value
    return {} if "rope_theta" in config or "model_type" in config else UNKNOWN


def _rope_type(server: ServerFacts, subject: AuditSubject) -> Fact:
    length = _length(server)
    if length is not UNKNOWN:
        return length.rope_type
    rope = _rope(server)
    if rope is UNKNOWN:
        return UNKNOWN
    name = rope.get("rope_type", rope.get("type", "default"))
    return {"su": "longrope"}.get(name, name) if isinstance(name, str) else UNKNOWN


def _length_rule(server: ServerFacts, subject: AuditSubject) -> Fact:
    length = _length(server)
    if length is not UNKNOWN:
        return length.rule
    name, version = engine_of(server)
    if name is None or version is None:
        return UNKNOWN
    from prefixaudit.cost.position import length_dependence
    from prefixaudit.families import describe

    # The model isn't known: does this release depend on more than it for any model?
    longrope = length_dependence(describe(_LONGROPE), engine=name, version=version)
    return longrope.rule if longrope.is_safe else UNKNOWN


def _position_regime(server: ServerFacts, subject: AuditSubject) -> Fact:
    length = _length(server)
    if length is UNKNOWN:
        return UNKNOWN
    if length.rope_type != "longrope":
        return None
    return UNKNOWN if length.identity is None else length.identity


def _dual_chunk(server: ServerFacts, subject: AuditSubject) -> Fact:
    if server.model_config is None:
        return UNKNOWN
    value = server.model_config.get("dual_chunk_attention_config")
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fp8_kv(server: ServerFacts, subject: AuditSubject) -> Fact:
    value = fact_of("kv_cache_dtype", server, subject)
    return (
        value.startswith("fp8")
        if isinstance(value, str) and value != "auto"
        else (False if value is None else UNKNOWN)
    )


def _event_encoding(server: ServerFacts, subject: AuditSubject) -> Fact:
    if server.engine is None or server.engine.version is None or server.engine.events is None:
        return UNKNOWN
    return server.engine.events.encoding


def _block_size(server: ServerFacts, subject: AuditSubject) -> Fact:
    own = [
        tier.block_size
        for tier in subject.tiers
        if tier.tier.kind == "local-pool" and server.name in tier.servers
    ]
    return own[0] if own else server.settings.get("block_size", UNKNOWN)


_DERIVED: Final[Mapping[str, Callable[[ServerFacts, AuditSubject], Fact]]] = {
    "engine_version": _engine_version,
    "connectors": _connectors,
    "enable_lora": _enable_lora,
    "enable_prompt_embeds": _enable_prompt_embeds,
    "hash_algorithm": _hash_algorithm,
    "hash_seed": lambda server, subject: _first_known(server, "python_hash_seed", "hash_seed"),
    "serves_media": _serves_media,
    "has_tenants": _has_tenants,
    "stores": _tiers_of_kind("external-store"),
    "routers": _tiers_of_kind("router-index"),
    "is_recurrent": _is_recurrent,
    "rope_type": _rope_type,
    "length_rule": _length_rule,
    "position_regime": _position_regime,
    "dual_chunk": _dual_chunk,
    "fp8_kv": _fp8_kv,
    "event_encoding": _event_encoding,
    "block_size": _block_size,
}
