"""The checks that aren't tests of behaviour: format, lint, types and who imports whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "format", "--check", "--diff", "."),
        ("ruff", "check", "."),
        ("mypy",),
        ("lint-imports", "--no-cache"),
    ],
    ids=["format", "lint", "types", "import-contracts"],
)
def test_house_is_in_order(command: tuple[str, ...]) -> None:
    finished = subprocess.run(
        [TOOLS / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
