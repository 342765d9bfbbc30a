"""What a module of `prefixaudit.cli.commands` ends in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: a function (its docstring is the help text) or a group of subcommands.

    The function's parameters are typer options; it returns the exit code (None is 0). `order`
    sorts the commands in `--help`.
    """

    run: Callable[..., int | None] | None = None
    group: typer.Typer | None = None
    order: int = 50
