"""README shows what really happens: its commands are run and their output is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _shown() -> list[tuple[str, str]]:
    """Return README's `$ prefixaudit …` commands with the output shown below each."""
    shown = []
    for block in _BLOCK.findall(README.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("prefixaudit "):
                shown.append((command, output))
    return shown


def _run(command: str) -> str:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
    }
    finished = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in finished.stderr
    return finished.stdout


def test_readme_shows_commands() -> None:
    assert len(_shown()) >= 3


@pytest.mark.parametrize(("command", "output"), _shown(), ids=[c for c, _ in _shown()])
def test_command_prints_what_readme_shows(command: str, output: str) -> None:
    assert _run(command).rstrip() == output.rstrip()


def test_readme_has_one_line_to_run_and_one_line_to_test() -> None:
    lines = re.findall(
        r"^\$ (python3 -m venv .*)$", README.read_text(encoding="utf-8"), re.MULTILINE
    )

    assert len(lines) == 2
    assert "prefixaudit analyze samples/" in lines[0]
    assert "[test]" in lines[1]
