"""Builds the typer app out of the command modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from prefixaudit import __version__
from prefixaudit.cli.command import Command
from prefixaudit.registry import Registry

COMMANDS: Registry[Command] = Registry(
    kind="command", package="prefixaudit.cli.commands", attribute="COMMAND"
)

HELP = """Audit the prefix cache of an LLM server from its request logs, offline.

prefixaudit replays a log exactly (chat template, tokenizer, block hashes, pool) and says how much
of its prompts could be reused, what that saves, and whether the sharing is safe.

\b
Exit codes: 0 clean, 1 findings or a budget missed, 2 wrong usage or configuration,
            3 the audit is incomplete.
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"prefixaudit {__version__}")
        raise typer.Exit(0)


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the app. Where `arguments` begin with a command's name, only that one is imported."""
    app = typer.Typer(
        name="prefixaudit",
        help=HELP,
        rich_markup_mode=None,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    app.info.help = HELP
    first = arguments[0] if arguments else None
    names = [first] if first in COMMANDS.names else list(COMMANDS.names)
    members = sorted(((COMMANDS[name], name) for name in names), key=lambda m: (m[0].order, m[1]))
    for member, name in members:
        if member.group is not None:
            app.add_typer(member.group, name=name)
        elif member.run is not None:
            app.command(name, no_args_is_help=False)(member.run)
    return app
