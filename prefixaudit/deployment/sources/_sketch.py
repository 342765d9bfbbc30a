"""What a source makes of a file, before several of them become one deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from prefixaudit.core.finding import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One text file, or a part of one that starts at `first_line`; messages name it by `path`."""

    path: str
    text: str
    first_line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A [[server]] or [[tier]] table as data. None is: known to be unset (`false` in TOML).

    `unknown` says in words what stayed unknown of it.
    """

    data: Mapping[str, Any]
    location: Location
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Servers and tiers of one file.

    A tier's `servers` are names of servers of the same sketch. `unknown` is about the whole file.
    """

    servers: tuple[Piece, ...] = ()
    tiers: tuple[Piece, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
    """Configuration files that command lines name: found by the last part of their path.

    `by_name` has the texts; `lmcache` those of LMCache configurations that no server names, for
    servers that name none.
    """

    by_name: Mapping[str, SourceFile] = field(default_factory=dict)
    lmcache: tuple[SourceFile, ...] = ()
    found: set[str] = field(default_factory=set)

    def find(self, path: str) -> SourceFile | None:
        """Return the file whose name is the last part of `path`, and note in `found` that it is."""
        name = PurePosixPath(path.strip()).name
        file = self.by_name.get(name)
        if file is not None:
            self.found.add(name)
        return file


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSource:
    """A kind of deployment file.

    `recognises` decides by content. `read` makes the sketch. `attached` returns the configuration
    files inside (a config file itself, the data of ConfigMaps) by name. Kinds are tried in `order`;
    a file of a kind that `is_attachment` is read on its own only where no other file names it.
    """

    title: str
    recognises: Callable[[SourceFile], bool]
    read: Callable[[SourceFile, Attachments], Sketch]
    attached: Callable[[SourceFile], Mapping[str, SourceFile]] | None = None
    order: int = 50
    is_attachment: bool = False
