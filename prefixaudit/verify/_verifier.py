"""The seam between the framework and the kinds of golden vectors: GoldenFile, Tally, Verifier.

A member is `verify/NAME.py` and ends in `VERIFIER = Verifier(...)`. Its folder is NAME as it
stands (`vllm_hashes/`), its kind on the command line the same with `-`. Its `verify` walks one
file's cases and tells the tally what was expected and what was found:

    def _verify(file: GoldenFile, tally: Tally) -> None:
        for case in file.data["cases"]:
            tally.case(case["seq"])
            tally.compare("hash", case["hashes"], recompute(case))

A PrefixAuditError, or an error that a wrongly made file leads to (KeyError, IndexError, TypeError,
ValueError, AttributeError, ArithmeticError, struct.error), is reported as a broken file, with the
case it came from; it never ends the run and never passes for equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """One decoded file of vectors; `name` is its path below the folder that is verified."""

    path: Path
    name: str
    data: Mapping[str, Any]
    engine_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first place in a file where what was found isn't what was expected."""

    file: str
    case: str
    what: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReproduced:
    """A case (or a whole file: case "") that can't be recomputed here, and why."""

    file: str
    case: str
    reason: str


class Tally:
    """Counts cases, operations and mismatches of one file, and keeps its first mismatch."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.current_case = ""
        self.num_configs = 0
        self.num_cases = 0
        self.num_operations = 0
        self.num_mismatches = 0
        self.first_mismatch: Mismatch | None = None
        self.not_reproduced: list[NotReproduced] = []

    def config(self, label: str) -> None:
        """Begin a model config; its cases follow."""
        self.current_case = label
        self.num_configs += 1

    def case(self, label: str) -> None:
        """Begin a case; comparisons that follow belong to it."""
        self.current_case = label
        self.num_cases += 1

    def compare(self, what: str, expected: Sequence[object], found: Sequence[object]) -> bool:
        """Compare two sequences item by item; each item is one operation. True: all are equal."""
        self.num_operations += max(len(expected), len(found))
        if len(expected) == len(found) and list(expected) == list(found):
            return True
        for place in range(max(len(expected), len(found))):
            left = expected[place] if place < len(expected) else _NOTHING
            right = found[place] if place < len(found) else _NOTHING
            if left is _NOTHING or right is _NOTHING or left != right:
                self._mismatch(f"{what} {place}", left, right)
        return False

    def equal(self, what: str, expected: object, found: object) -> bool:
        """Compare two values as one operation. True: they are equal."""
        self.num_operations += 1
        if expected == found:
            return True
        self._mismatch(what, expected, found)
        return False

    def leave_out(self, reason: str) -> None:
        """Say that the current case (or the file, before any case) can't be reproduced, and why."""
        self.not_reproduced.append(
            NotReproduced(file=self.file_name, case=self.current_case, reason=reason)
        )

    def _mismatch(self, what: str, expected: object, found: object) -> None:
        self.num_mismatches += 1
        if self.first_mismatch is None:
            self.first_mismatch = Mismatch(
                file=self.file_name,
                case=self.current_case,
                what=what,
                expected=str(expected),
                found=str(found),
            )


class _Nothing:
    def __str__(self) -> str:
        return "(nothing)"


_NOTHING = _Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """One kind of golden vectors.

    title       for a person, one line
    engine      the engine whose vectors they are
    recognises  whether decoded content is of this kind, for files outside a folder of that name;
                must be true for one kind only
    verify      recomputes one file
    file_names  file names that are of this kind wherever they lie
    """

    title: str
    engine: str
    recognises: Callable[[Mapping[str, Any]], bool]
    verify: Callable[[GoldenFile, Tally], None]
    file_names: tuple[str, ...] = ()
