"""README shows what really happens: its commands are run and their output is compared."""

from __future__ import annotations

import re

import pytest

from tests.readme import README, run, shown


def test_readme_shows_commands() -> None:
    assert len(shown()) >= 3


@pytest.mark.parametrize(("command", "output"), shown(), ids=[command for command, _ in shown()])
def test_command_prints_what_readme_shows(command: str, output: str) -> None:
    assert run(command).strip("\n") == output


def test_readme_has_one_line_to_run_and_one_line_to_test() -> None:
    lines = re.findall(r"^\$ (python3 -m venv .*)$", README.read_text("utf-8"), re.MULTILINE)

    assert len(lines) == 2
    assert "prefixaudit analyze samples/" in lines[0]
    assert "[test]" in lines[1]
