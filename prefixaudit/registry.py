"""Finds the members of a kind: one file each in the kind's package, no list to edit.

A member's name is its file's name with `_` written as `-` (`openai_batch.py` is `openai-batch`).
Nothing is imported before a member is asked for by name, or all of them are.
"""

from __future__ import annotations

import importlib
import importlib.resources
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import Generic, TypeVar

from prefixaudit.errors import UsageError, unknown_name

Member = TypeVar("Member")


class Registry(Mapping[str, Member], Generic[Member]):
    """The members of one kind by name: modules of `package` that end in `attribute = …`."""

    def __init__(self, *, kind: str, package: str, attribute: str) -> None:
        self.kind = kind
        self._package = package
        self._attribute = attribute
        self._names: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all members, sorted; modules that start with `_` are none."""
        if self._names is None:
            path = importlib.import_module(self._package).__path__
            self._names = tuple(
                sorted(
                    module.name.replace("_", "-")
                    for module in pkgutil.iter_modules(path)
                    if not module.name.startswith("_") and not module.ispkg
                )
            )
        return self._names

    def __getitem__(self, name: str) -> Member:
        """Return one member. Raises UsageError, with the known names, where there is none."""
        if name not in self.names:
            raise UsageError(unknown_name(self.kind, name, self.names))
        module = importlib.import_module(f"{self._package}.{name.replace('-', '_')}")
        member: Member = getattr(module, self._attribute)
        return member

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class FileRegistry(Mapping[str, Member], Generic[Member]):
    """The members of one kind that are files: `package/NAME.toml`, read by `load`."""

    def __init__(
        self,
        *,
        kind: str,
        package: str,
        load: Callable[[Traversable], Member],
        suffix: str = ".toml",
    ) -> None:
        self.kind = kind
        self._package = package
        self._load = load
        self._suffix = suffix
        self._loaded: dict[str, Member] = {}

    def _files(self) -> dict[str, Traversable]:
        folder = importlib.resources.files(self._package)
        return {
            file.name.removesuffix(self._suffix): file
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(self._suffix)
        }

    def __getitem__(self, name: str) -> Member:
        """Return one member. Raises UsageError, with the known names, where there is none."""
        if name not in self._loaded:
            files = self._files()
            if name not in files:
                raise UsageError(unknown_name(self.kind, name, files))
            self._loaded[name] = self._load(files[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files())

    def __len__(self) -> int:
        return len(self._files())
