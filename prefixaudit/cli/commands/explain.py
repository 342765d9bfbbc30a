"""`prefixaudit explain`: everything that is known of one member of a kind."""

from __future__ import annotations

from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A name, or KIND:NAME: salt-guessable, engine:vllm@0.33.0."
        ),
    ],
    output: options.OutputOption = None,
) -> None:
    """The page of one rule, engine, format, family, policy ...

    \b
    Examples:
      prefixaudit explain salt-guessable
      prefixaudit explain engine:vllm@0.33.0
      prefixaudit explain format:openai
      prefixaudit explain lru
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.explaining import page_of

    streams.write_result("\n".join(page_of(name)), output)


COMMAND = Command(run=explain, order=81)
