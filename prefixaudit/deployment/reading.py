"""Several deployment files, of any known kind, as one Deployment or one prefixaudit.toml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from prefixaudit.deployment.file import read_document
from prefixaudit.deployment.loading import DEPLOYMENT_FILE, completed, load_deployment
from prefixaudit.deployment.sources._assembly import Assembled, assemble
from prefixaudit.deployment.sources._sketch import SourceFile
from prefixaudit.deployment.sources._toml import toml_text
from prefixaudit.deployment.value import Deployment, Overrides
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.tables import Table, TomlDocument

_MAX_FILE_BYTES: Final = 4 * 2**20
_SUFFIXES: Final = frozenset((".yaml", ".yml", ".json", ".sh", ".toml"))


def read_deployments(paths: Sequence[Path], overrides: Overrides | None = None) -> Deployment:
    """Return what all files say together: a prefixaudit.toml, and files that start servers.

    A folder stands for the deployment files in it; others there are left aside. The TOML's word
    wins over the files', and that of options over both. Raises ConfigurationError with all
    problems, UsageError for two TOML files and wrong options.
    """
    files = _sorted_out(paths)
    if files.toml is not None and not files.others:
        return load_deployment(files.toml, overrides)
    document, assembled, place = _assembled(files)
    deployment = completed(read_document(document, place, assembled.locations), overrides)
    return replace(
        deployment,
        path=files.toml if files.toml is not None else files.others[0],
        not_understood=tuple(
            f"{name}: {note}" if name else note
            for name, notes in assembled.unknown.items()
            for note in notes
        ),
    )


def files_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files that paths stand for, the prefixaudit.toml first. Raises UsageError."""
    files = _sorted_out(paths)
    return (*(() if files.toml is None else (files.toml,)), *files.others)


def written_toml(paths: Sequence[Path]) -> str:
    """Return a prefixaudit.toml of what was understood; reading it gives the same facts.

    Raises ConfigurationError with all problems, also of the TOML that would be written.
    """
    document, assembled, place = _assembled(_sorted_out(paths))
    read_document(document, place, assembled.locations)
    return toml_text(assembled, [str(path) for path in files_of(paths)])


@dataclass(frozen=True, slots=True)
class _Files:
    """The TOML file, and the others; those of `found` come out of a folder and may be none."""

    toml: Path | None
    others: tuple[Path, ...]
    found: frozenset[Path]


def _sorted_out(paths: Sequence[Path]) -> _Files:
    if not paths:
        raise UsageError("no deployment file was given")
    given: list[Path] = []
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.suffix in _SUFFIXES)
            if not inside:
                raise UsageError(f"{path}: the folder has no deployment file")
            given += inside
            found |= set(inside)
        else:
            given.append(path)
    tomls = [path for path in given if path.suffix == ".toml"]
    if len(tomls) > 1:
        raise UsageError(f"{tomls[1]} was given beside {tomls[0]}; give one TOML file")
    return _Files(
        tomls[0] if tomls else None,
        tuple(path for path in given if path.suffix != ".toml"),
        frozenset(found),
    )


def _assembled(given: _Files) -> tuple[TomlDocument, Assembled, Path]:
    """Return a document with all tables, where they come from, and the file they are laid in."""
    files: list[SourceFile] = []
    problems: list[str] = []
    for path in given.others:
        try:
            if path.is_file() and path.stat().st_size > _MAX_FILE_BYTES:
                problems.append(f"{path}: larger than 4 MiB; expected a deployment file")
                continue
            files.append(SourceFile(path=str(path), text=path.read_bytes().decode("utf-8-sig")))
        except OSError as error:
            problems.append(f"{path}: can't be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            problems.append(f"{path}: byte {error.start} is not UTF-8")
    if problems:
        raise ConfigurationError(problems)
    toml = given.toml
    if toml is not None:
        document, place = TomlDocument.read(toml), toml
    else:
        first = given.others[0]
        document, place = TomlDocument(str(first), ""), first.parent / DEPLOYMENT_FILE
    optional = frozenset(str(path) for path in given.found)
    assembled = assemble(files, document.root.data, optional=optional)
    document.root = Table(document, (), assembled.data)
    return document, assembled, place
