"""Kinds of things that `list` and `explain` know, one file a kind.

A member is `cli/kinds/NAME.py` and ends in `KIND = Kind(...)`; its name is the plural that
`prefixaudit list` takes (`engines`), and `explain` takes `engine:NAME`. Everything that is imported
to answer is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prefixaudit.cli.tables import Table
from prefixaudit.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What `list` prints, and what `explain` says of one member.

    singular  how one member is called: `explain SINGULAR:NAME`
    names     the members' names, sorted
    table     all members as a table
    explain   the page of one member as lines; raises UsageError for an unknown one
    """

    title: str
    singular: str
    names: Callable[[], tuple[str, ...]]
    table: Callable[[], Table]
    explain: Callable[[str], list[str]]


KINDS: Final[Registry[Kind]] = Registry(
    kind="kind", package="prefixaudit.cli.kinds", attribute="KIND"
)
