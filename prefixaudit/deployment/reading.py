"""Several deployment files, of any known kind, as one Deployment or one prefixaudit.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prefixaudit.deployment.file import (
    DEPLOYMENT_FILE,
    completed,
    load_deployment,
    read_document,
)
from prefixaudit.deployment.sources._assembly import Assembled, assemble
from prefixaudit.deployment.sources._sketch import SourceFile
from prefixaudit.deployment.sources._toml import toml_text
from prefixaudit.deployment.value import Deployment, Overrides
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.tables import Table, TomlDocument

_MAX_FILE_BYTES: Final = 4 * 2**20


def read_deployments(paths: Sequence[Path], overrides: Overrides | None = None) -> Deployment:
    """Return what all files say together: a prefixaudit.toml, and files that start servers.

    The TOML's word wins over the files', and that of options over both. Raises ConfigurationError
    with all problems, UsageError for two TOML files and wrong options.
    """
    toml, others = _sorted_out(paths)
    if toml is not None and not others:
        return load_deployment(toml, overrides)
    document = _document(toml, others)
    assembled = _assembled(document, others)
    document.root = Table(document, (), assembled.data)
    place = toml if toml is not None else others[0].parent / DEPLOYMENT_FILE
    deployment = completed(read_document(document, place, assembled.locations), overrides)
    return replace(
        deployment,
        path=toml if toml is not None else others[0],
        not_understood=tuple(
            f"{name}: {note}" if name else note
            for name, notes in assembled.unknown.items()
            for note in notes
        ),
    )


def written_toml(paths: Sequence[Path]) -> str:
    """Return a prefixaudit.toml of what was understood; reading it gives the same facts.

    Raises ConfigurationError with all problems, also of the TOML that would be written.
    """
    toml, others = _sorted_out(paths)
    document = _document(toml, others)
    assembled = _assembled(document, others)
    document.root = Table(document, (), assembled.data)
    place = toml if toml is not None else others[0].parent / DEPLOYMENT_FILE
    read_document(document, place, assembled.locations)
    return toml_text(assembled, [str(path) for path in paths])


def _sorted_out(paths: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    tomls = [path for path in paths if path.suffix == ".toml"]
    if len(tomls) > 1:
        raise UsageError(f"{tomls[1]} was given beside {tomls[0]}; give one TOML file")
    if not paths:
        raise UsageError("no deployment file was given")
    return (tomls[0] if tomls else None), [path for path in paths if path.suffix != ".toml"]


def _document(toml: Path | None, others: Sequence[Path]) -> TomlDocument:
    return TomlDocument.read(toml) if toml is not None else TomlDocument(str(others[0]), "")


def _assembled(document: TomlDocument, others: Sequence[Path]) -> Assembled:
    files: list[SourceFile] = []
    problems: list[str] = []
    for path in others:
        try:
            if path.is_dir():
                problems.append(f"{path}: is a folder; expected deployment files")
                continue
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
    base: Mapping[str, Any] = document.root.data
    return assemble(files, base)
