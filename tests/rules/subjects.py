"""Small deployments without a log, as the audit sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefixaudit.audit.facts import adapters_of, has_tenants, servers_of, tiers_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.deployment.file import read_document
from prefixaudit.tables import Table, TomlDocument


def subject_of(tables: Mapping[str, Any]) -> AuditSubject:
    """Return the subject of a prefixaudit.toml given as tables."""
    document = TomlDocument("deployment", "")
    document.root = Table(document, (), tables)
    deployment = read_document(document, Path("prefixaudit.toml"))
    return AuditSubject(
        servers=servers_of(deployment),
        tiers=tiers_of(deployment, block_size=deployment.block_size or 16, capacity_blocks=None),
        adapters=adapters_of(deployment),
        has_tenants=has_tenants(deployment),
    )


def one_server(
    engine: str,
    version: str | None,
    settings: Mapping[str, Any],
    tiers: Sequence[Mapping[str, Any]] = (),
    **tables: Any,
) -> AuditSubject:
    """Return the subject of one server, and tiers that it uses."""
    name = {"name": engine} | ({} if version is None else {"version": version})
    return subject_of(
        {"engine": {**name, "settings": dict(settings)}, "tier": list(tiers), **tables}
        if tiers
        else {"engine": {**name, "settings": dict(settings)}, **tables}
    )
