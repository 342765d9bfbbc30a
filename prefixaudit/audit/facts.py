"""Servers and tiers of a deployment, where its file doesn't list them: one server, its own pool."""

from __future__ import annotations

from typing import Final

from prefixaudit.core.audit import AdapterFacts, ServerFacts, TierFacts
from prefixaudit.core.engine import EngineProfile, KeyPart, Tier
from prefixaudit.core.identity import CONTENT_FIELDS
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.model_folder import read_model_config

THE_SERVER: Final = "server"

# Where no engine is given: a cache that keeps apart all that changes the KV, and what a request
# itself asks to be apart. What such a cache would share is what any engine shares.
_GENERIC_KEY: Final = (*CONTENT_FIELDS, "cache_salt", "extra_key")


def generic_profile() -> EngineProfile:
    """Return the profile that stands in where no engine is given."""
    parts = tuple(
        KeyPart(field=name, placement="all-blocks", form="value")
        for name in (*_GENERIC_KEY, "media")
    )
    tier = Tier(
        name="pool",
        title="Pool of an engine that isn't given",
        kind="local-pool",
        key=parts,
        hash=None,
        process_fields=(),
        ambiguities=(),
        not_in_key=(),
    )
    return EngineProfile(
        name="no engine",
        version=None,
        default_block_size=16,
        min_recomputed_tokens=1,
        key_fields=tier.key_fields,
        tiers=(tier,),
    )


def servers_of(deployment: Deployment) -> tuple[ServerFacts, ...]:
    """Return the deployment's servers; one, made of [engine] and [model], where none is listed."""
    if deployment.servers:
        return deployment.servers
    return (
        ServerFacts(
            name=THE_SERVER,
            engine=deployment.engine,
            identity=deployment.identity,
            settings=dict(deployment.engine_settings),
            model_config=None
            if deployment.model_dir is None
            else read_model_config(deployment.model_dir),
            max_model_len=deployment.max_model_len,
        ),
    )


def tiers_of(
    deployment: Deployment, *, block_size: int, capacity_blocks: int | None
) -> tuple[TierFacts, ...]:
    """Return the deployment's tiers, local pools first.

    `block_size` and `capacity_blocks` are those of the pool that the log is replayed in. They and
    the deployment's engine hold where there is one server, whatever is listed: options win.
    """
    servers = servers_of(deployment)
    listed = deployment.tiers
    local = [tier for tier in listed if tier.tier.kind == "local-pool"]
    shared = [tier for tier in listed if tier.tier.kind != "local-pool"]
    if len(servers) == 1:
        profile = deployment.engine or servers[0].engine or generic_profile()
        if not profile.tiers:
            return tuple(listed)
        own = TierFacts(
            name=profile.tiers[0].name,
            profile=profile,
            tier=profile.tiers[0],
            block_size=block_size,
            servers=(servers[0].name,),
            capacity_blocks=capacity_blocks,
            settings=servers[0].settings,
            location=servers[0].location,
        )
        return (own, *shared)
    return (*local, *shared)


def adapters_of(deployment: Deployment) -> tuple[AdapterFacts, ...]:
    """Return all adapters that the deployment's file or its events name."""
    listed = deployment.adapters or ()
    loaded = () if deployment.timeline is None else deployment.timeline.adapter_names
    known = {adapter.name for adapter in listed}
    return (*listed, *(AdapterFacts(name=name) for name in loaded if name not in known))


def has_tenants(deployment: Deployment) -> Known[bool]:
    """Say whether several tenants are served, as far as the deployment tells.

    Who names a source of tenants, or trust domains, serves several; who gives every request one
    tenant serves one.
    """
    if deployment.tenant_rule is not None or deployment.trust_domains:
        return True
    return False if isinstance(deployment.identity.tenant, str) else UNKNOWN
