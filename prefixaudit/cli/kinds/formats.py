"""Log formats, with the fields that a request read from them can know."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.logs import LOG_FORMATS

    return LOG_FORMATS.names


def _table() -> Table:
    from prefixaudit.logs import LOG_FORMATS

    return Table(
        heads=("format", "what it is, and what it can know"),
        rows=tuple(
            (name, f"{LOG_FORMATS[name].title}. Fields: {', '.join(LOG_FORMATS[name].fields)}")
            for name in LOG_FORMATS.names
        ),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.logs import LOG_FORMATS

    log_format = LOG_FORMATS[name]
    rows = [
        ("what it is", log_format.title),
        ("fields", ", ".join(log_format.fields)),
        ("option", f"--log-format {name}; without it a file is recognised by its content"),
    ]
    return [f"log format {name}", "", *labelled(rows)]


KIND = Kind(
    title="log formats that can be read",
    singular="format",
    names=_names,
    table=_table,
    explain=_explain,
)
