"""LoRA adapters that requests name as if they were models.

[adapters]
legal = "/adapters/legal-v1"                             # its path, or
sql = {path = "/adapters/sql", revision = "2026-01-15"}  # a table; both keys are optional
"""

from __future__ import annotations

from collections.abc import Sequence

from prefixaudit.core.audit import AdapterFacts, ServerFacts
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.tables import Table


def read_adapters(table: Table) -> tuple[AdapterFacts, ...]:
    """Read the [adapters] table; problems are noted in its document."""
    table.allow_any_keys()
    adapters = []
    for name in table:
        if isinstance(table.data[name], str):
            adapters.append(AdapterFacts(name=name, path=table.text(name)))
            continue
        inner = table.table(name)
        adapters.append(
            AdapterFacts(
                name=name,
                path=inner.text("path", default=UNKNOWN),
                revision=inner.text("revision", default=UNKNOWN),
            )
        )
    return tuple(adapters)


def adapters_of(servers: Sequence[ServerFacts]) -> tuple[AdapterFacts, ...] | None:
    """Return the adapters that the servers load at start; None where nobody lists any.

    Servers that are known to serve no adapters list them: there are none. A name that two servers
    load from two paths has none here.
    """
    paths: dict[str, Known[str]] = {}
    for server in servers:
        modules = server.settings.get("lora_modules")
        for module in modules if isinstance(modules, tuple) else ():
            name, separator, path = module.partition("=")
            known: Known[str] = path if separator else UNKNOWN
            paths[name] = known if paths.get(name, known) == known else UNKNOWN
    off = [server.settings.get("enable_lora", UNKNOWN) is False for server in servers]
    if not paths and not (servers and all(off)):
        return None
    return tuple(AdapterFacts(name=name, path=path) for name, path in paths.items())
