"""Runs the command line inside the test process, with what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.cli import run

CASES = Path(__file__).parent.parent / "data" / "cases"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Runner:
    """Call it with the arguments of one command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        code = run([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return Ran(code=code, out=out, err=err)


def case_folder(name: str) -> Path:
    """Return the folder of a case by its number (`B001`)."""
    [folder] = CASES.glob(f"{name}-*")
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
