"""Files out of what a user names: files, globs, folders, `-` for standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prefixaudit.errors import UsageError
from prefixaudit.logs._file import STDIN

_LOG_SUFFIXES: Final = (".jsonl", ".ndjson", ".log")
_TABLE_SUFFIXES: Final = (".csv", ".tsv", ".json", ".parquet", ".arrow", ".feather", ".txt")
_COMPRESSION_SUFFIXES: Final = (".gz", ".zst", ".zstd")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read; `folder` is set where it was found in a folder and not named."""

    path: str
    folder: str | None = None

    @property
    def looks_like_a_log(self) -> bool:
        """Say whether the name is one that logs have (files in a folder can be anything)."""
        return self._bare_name.endswith(_LOG_SUFFIXES)

    @property
    def may_be_a_log(self) -> bool:
        """Say whether the name is one that logs and tables have, where the format is known."""
        return self._bare_name.endswith((*_LOG_SUFFIXES, *_TABLE_SUFFIXES))

    @property
    def _bare_name(self) -> str:
        name = self.path.lower()
        for suffix in _COMPRESSION_SUFFIXES:
            name = name.removesuffix(suffix)
        return name


def find_files(paths: Sequence[str]) -> list[FoundFile]:
    """Return the files that `paths` name, each once, those of a folder or glob sorted.

    Hidden files of a folder are left out. Raises UsageError where a name stands for nothing.
    """
    if not paths:
        raise UsageError("no log given; name files, folders, patterns or - for standard input")
    found: dict[str, FoundFile] = {}
    for path in paths:
        for file in _expanded(path):
            found.setdefault(os.path.realpath(file.path) if file.path != STDIN else STDIN, file)
    return list(found.values())


def _expanded(path: str) -> list[FoundFile]:
    if path == STDIN:
        return [FoundFile(STDIN)]
    if Path(path).is_dir():
        files = _files_below(path)
        if not files:
            raise UsageError(f"{path}: the folder holds no files; a folder with logs was expected")
        return files
    if os.path.lexists(path):
        return [FoundFile(path)]
    if glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  keeps the user's spelling
        if not matches:
            raise UsageError(f"{path}: no file matches the pattern")
        return [
            file
            for match in matches
            for file in (_files_below(match) if Path(match).is_dir() else [FoundFile(match)])
        ]
    raise UsageError(f"{path}: no such file or folder")


def _files_below(folder: str) -> list[FoundFile]:
    files: list[FoundFile] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            FoundFile(path, folder)
            for name in sorted(names)
            if not name.startswith(".")
            and (path := str(Path(parent, name)))
            and Path(path).is_file()
        ]
    return files
