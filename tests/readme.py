"""README's commands and what they print: `python tests/readme.py` writes the output anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown() -> list[tuple[str, str]]:
    """Return README's `$ prefixaudit …` commands with the output shown below each."""
    return [pair for block in BLOCK.findall(README.read_text("utf-8")) for pair in _pairs(block)]


def run(command: str) -> str:
    """Return what a command prints on a terminal of 100 columns without colour."""
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
    if "Traceback" in finished.stderr:
        raise AssertionError(finished.stderr)
    return finished.stdout


def _pairs(block: str) -> list[tuple[str, str]]:
    pairs = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        if command.startswith("prefixaudit "):
            pairs.append((command, output.strip("\n")))
    return pairs


def _renewed(match: re.Match[str]) -> str:
    pairs = _pairs(match.group(1))
    if not pairs:
        return match.group(0)
    parts = [f"$ {command}\n{run(command).rstrip()}\n" for command, _ in pairs]
    return "```console\n" + "\n".join(parts) + "```"


if __name__ == "__main__":
    README.write_text(BLOCK.sub(_renewed, README.read_text("utf-8")), "utf-8")
