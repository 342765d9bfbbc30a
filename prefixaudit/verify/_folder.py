"""Verifies a folder of golden vectors: finds each file's kind, recomputes it, counts."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prefixaudit.errors import PrefixAuditError, UsageError
from prefixaudit.registry import Registry
from prefixaudit.verify._verifier import GoldenFile, Mismatch, NotReproduced, Tally, Verifier

VERIFIERS: Final[Registry[Verifier]] = Registry(
    kind="kind of golden vectors", package="prefixaudit.verify", attribute="VERIFIER"
)
_VERSION = re.compile(r"(\d+(?:\.\w+)+)")
# What a verifier may run into when a file isn't made as its kind says.
_BROKEN_FILE_ERRORS: Final = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    struct.error,
)
_DOCUMENTS = (".md", ".txt", ".rst")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedKind:
    """Counts of one kind and engine version; `num_mismatches` counts operations that differ.

    `num_configs` counts model configs, where a kind's cases belong to some.
    """

    kind: str
    title: str
    engine: str
    engine_version: str
    num_files: int
    num_configs: int
    num_cases: int
    num_operations: int
    num_mismatches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """A file or folder that could not be verified at all, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """What `verify` found, kinds in order of name.

    first_mismatches  the first one of each kind, in full
    not_reproduced    cases that this tool can't recompute, each with its reason
    problems          broken files
    unknown           files and folders of no known kind
    """

    root: str
    kinds: tuple[VerifiedKind, ...]
    first_mismatches: Mapping[str, Mismatch]
    not_reproduced: tuple[NotReproduced, ...]
    problems: tuple[FileProblem, ...]
    unknown: tuple[FileProblem, ...]

    @property
    def num_files(self) -> int:
        return sum(row.num_files for row in self.kinds)

    @property
    def num_mismatches(self) -> int:
        return sum(row.num_mismatches for row in self.kinds)

    @property
    def unknown_vectors(self) -> tuple[FileProblem, ...]:
        """Return the JSON files of no known kind: they look like vectors and were not verified."""
        return tuple(item for item in self.unknown if item.name.endswith(".json"))

    @property
    def is_equal(self) -> bool:
        """Return whether something was verified, every value was equal and no file was broken."""
        return self.num_files > 0 and self.num_mismatches == 0 and not self.problems

    @property
    def is_complete(self) -> bool:
        """Return whether no file, folder or case was left out."""
        return not (self.problems or self.unknown or self.not_reproduced)


@dataclass(slots=True)
class _Counts:
    title: str
    engine: str
    num_files: int = 0
    num_configs: int = 0
    num_cases: int = 0
    num_operations: int = 0
    num_mismatches: int = 0


@dataclass(slots=True)
class _Findings:
    counts: dict[tuple[str, str], _Counts] = field(default_factory=dict)
    first_mismatches: dict[str, Mismatch] = field(default_factory=dict)
    not_reproduced: list[NotReproduced] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)
    unknown: list[FileProblem] = field(default_factory=list)


def verify_folder(path: Path | str, *, kinds: Iterable[str] | None = None) -> VerificationReport:
    """Recompute every vector below `path` (a folder or one file) and count what differs.

    A file's kind is given by a folder of that name above it (nearest first, `path` itself
    included), by its own name, or by its content. `kinds` limits the run to some kinds; files of
    others are then named in `unknown`. Raises UsageError if there is no such path or kind.
    """
    root = Path(path)
    if not root.exists():
        raise UsageError(f"{path}: no such file or folder")
    wanted = tuple(VERIFIERS) if kinds is None else tuple(kinds)
    verifiers = {kind: VERIFIERS[kind] for kind in wanted}
    found = _Findings()
    if root.is_file():
        _verify_file(root, root.name, _folder_names(root.absolute().parent, ()), verifiers, found)
    else:
        _verify_tree(root, verifiers, found)
    return VerificationReport(
        root=str(path),
        kinds=tuple(
            VerifiedKind(
                kind=kind,
                title=count.title,
                engine=count.engine,
                engine_version=version,
                num_files=count.num_files,
                num_configs=count.num_configs,
                num_cases=count.num_cases,
                num_operations=count.num_operations,
                num_mismatches=count.num_mismatches,
            )
            for (kind, version), count in sorted(
                found.counts.items(), key=lambda item: (item[0][0], _version_order(item[0][1]))
            )
        ),
        first_mismatches=dict(sorted(found.first_mismatches.items())),
        not_reproduced=tuple(found.not_reproduced),
        problems=tuple(found.problems),
        unknown=tuple(found.unknown),
    )


def _verify_tree(root: Path, verifiers: Mapping[str, Verifier], found: _Findings) -> None:
    def unreadable(error: OSError) -> None:
        name = str(error.filename or root)
        found.problems.append(FileProblem(name=name, reason=f"can't be read: {error.strerror}"))

    base = root.absolute()
    for folder, subfolders, files in os.walk(base, onerror=unreadable):
        subfolders.sort()
        here = Path(folder)
        above = _folder_names(base, here.relative_to(base).parts)
        for file_name in sorted(files):
            path = here / file_name
            name = path.relative_to(base).as_posix()
            if file_name.endswith(_DOCUMENTS):
                continue
            if not file_name.endswith(".json"):
                found.unknown.append(FileProblem(name=name, reason="not a .json file"))
                continue
            _verify_file(path, name, above, verifiers, found)


def _folder_names(base: Path, below: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the folders around a file, nearest first.

    Two folders above the given one count too, for `verify vllm_replay/vllm-0.33.0`.
    """
    return (*reversed(below), base.name, base.parent.name)


def _verify_file(
    path: Path,
    name: str,
    folders: tuple[str, ...],
    verifiers: Mapping[str, Verifier],
    found: _Findings,
) -> None:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        found.problems.append(FileProblem(name=name, reason=f"can't be read: {error.strerror}"))
        return
    except (ValueError, RecursionError) as error:
        found.problems.append(FileProblem(name=name, reason=f"not valid JSON: {error}"))
        return
    if not isinstance(data, dict):
        found.problems.append(FileProblem(name=name, reason="not a JSON object"))
        return
    kind = _kind_of(path.name, folders, data, verifiers)
    if kind is None:
        reason = "neither its folders, its name nor its content are of a known kind"
        found.unknown.append(FileProblem(name=name, reason=f"{reason}: {', '.join(verifiers)}"))
        return
    version = _engine_version(data, path, folders)
    tally = Tally(name)
    try:
        verifiers[kind].verify(
            GoldenFile(path=path, name=name, data=data, engine_version=version), tally
        )
        if tally.num_cases == 0 and not tally.not_reproduced:
            found.problems.append(FileProblem(name=name, reason=f"{kind}: holds no case"))
    except PrefixAuditError as error:
        found.problems.append(FileProblem(name=name, reason=f"{kind}: {_place(tally)}{error}"))
    except _BROKEN_FILE_ERRORS as error:
        reason = f"{kind}: {_place(tally)}{type(error).__name__}: {error}"
        found.problems.append(FileProblem(name=name, reason=reason))
    _count(kind, version, verifiers[kind], tally, found)


def _place(tally: Tally) -> str:
    return f"case {tally.current_case}: " if tally.current_case else ""


def _count(kind: str, version: str, verifier: Verifier, tally: Tally, found: _Findings) -> None:
    default = _Counts(title=verifier.title, engine=verifier.engine)
    counts = found.counts.setdefault((kind, version), default)
    counts.num_files += 1
    counts.num_configs += tally.num_configs
    counts.num_cases += tally.num_cases
    counts.num_operations += tally.num_operations
    counts.num_mismatches += tally.num_mismatches
    if tally.first_mismatch is not None:
        found.first_mismatches.setdefault(kind, tally.first_mismatch)
    found.not_reproduced.extend(tally.not_reproduced)


def _kind_of(
    file_name: str,
    folders: tuple[str, ...],
    data: Mapping[str, Any],
    verifiers: Mapping[str, Verifier],
) -> str | None:
    for folder in folders:
        kind = folder.replace("_", "-")
        if kind in verifiers:
            return kind
    for kind, verifier in verifiers.items():
        if file_name in verifier.file_names:
            return kind
    fitting = [kind for kind, verifier in verifiers.items() if verifier.recognises(data)]
    return fitting[0] if len(fitting) == 1 else None


def _engine_version(data: Mapping[str, Any], path: Path, folders: tuple[str, ...]) -> str:
    """Return the engine's version: as the file says, else from its name or its folder's."""
    version = data.get("engine_version")
    if isinstance(version, str):
        return version
    for name in (path.name.removesuffix(".json"), *folders[:1]):
        match = _VERSION.search(name)
        if match:
            return match.group(1)
    return ""


def _version_order(version: str) -> tuple[tuple[int, ...], str]:
    """Order versions by their numbers: 0.9.2 before 0.10.1."""
    return (tuple(int(number) for number in re.findall(r"\d+", version)), version)
