"""Model families, with the `model_type`s of config.json that they describe."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.families import FAMILIES

    return FAMILIES.names


def _table() -> Table:
    from prefixaudit.families import FAMILIES

    return Table(
        heads=("family", "what it is", "model types"),
        rows=tuple(
            (name, family.title, ", ".join(sorted((*family.model_types, *family.containers))))
            for name, family in FAMILIES.items()
        ),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.families import FAMILIES

    family = FAMILIES[name]
    types = (*family.model_types, *family.containers)
    rows = [
        ("what it is", family.title),
        ("model types", ", ".join(sorted(types))),
        ("used for", "prefill FLOPs and KV bytes of a model folder whose config.json names one"),
    ]
    return [f"model family {name}", "", *labelled(rows)]


KIND = Kind(
    title="model families whose FLOPs and KV bytes are known",
    singular="family",
    names=_names,
    table=_table,
    explain=_explain,
)
