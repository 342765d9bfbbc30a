"""`prefixaudit list`: the members of a kind."""

from __future__ import annotations

from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def list_members(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="engines, formats, rules, ...; without it: the kinds."),
    ] = None,
    output_format: options.TextOrJsonOption = "text",
    output: options.OutputOption = None,
) -> None:
    """List engines, log formats, model families, policies, rules ...

    \b
    Examples:
      prefixaudit list
      prefixaudit list engines
      prefixaudit list rules
      prefixaudit list formats --format json
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.kinds import KINDS
    from prefixaudit.cli.tables import Table, lines_of
    from prefixaudit.json_text import json_text

    if kind is None:
        table = Table(
            heads=("kind", "what"), rows=tuple((name, KINDS[name].title) for name in KINDS.names)
        )
    else:
        table = KINDS[kind].table()
    if output_format == "json":
        values = {"schema_version": 1, "kind": kind, "members": table.as_values()}
        text = json_text(values)
    else:
        text = "\n".join(lines_of(table))
    streams.write_result(text, output)


COMMAND = Command(run=list_members, order=80)
