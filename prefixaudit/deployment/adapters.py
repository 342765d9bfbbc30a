"""LoRA adapters that requests name as if they were models.

[adapters]
legal = "/adapters/legal-v1"                             # its path, or
sql = {path = "/adapters/sql", revision = "2026-01-15"}  # a table; both keys are optional
"""

from __future__ import annotations

from prefixaudit.core.audit import AdapterFacts
from prefixaudit.core.unknown import UNKNOWN
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
