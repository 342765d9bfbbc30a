"""What every command shares: help, versions, exit codes, streams, and errors without tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import prefixaudit
from prefixaudit.cli import app as cli_app
from tests.cli.running import Runner

HEAVY = ("numpy", "numba", "transformers", "tokenizers", "jinja2", "orjson", "rich")


def test_help_names_every_command(cli: Runner) -> None:
    ran = cli("--help")

    assert ran.code == 0
    for name in cli_app.COMMANDS.names:
        assert f"  {name} " in ran.out


@pytest.mark.parametrize("name", cli_app.COMMANDS.names)
def test_every_command_has_help_with_an_example(cli: Runner, name: str) -> None:
    ran = cli(name, "--help")

    assert ran.code == 0
    assert f"prefixaudit {name}" in ran.out.split("Usage:", 1)[1].split("\n", 1)[1]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from prefixaudit.cli import run; run(['--help']); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines()[-1] == "[]"


def test_help_answers_at_once() -> None:
    def wall_s() -> float:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "prefixaudit", "--help"], capture_output=True, check=True
        )
        return time.perf_counter() - start

    # The best of five: the machine may be busy with other things.
    assert min(wall_s() for _ in range(5)) < 0.5


def test_the_process_ends_without_a_last_look_for_cycles() -> None:
    script = (
        "import atexit, gc, sys; from prefixaudit.cli import main; "
        "atexit.register(lambda: print(len(gc.get_objects()))); "
        "sys.argv = ['prefixaudit', '--version']; main()"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    # What the collector would still go through: next to nothing of some 30,000 objects.
    assert int(ran.stdout.splitlines()[-1]) < 1000


def test_version(cli: Runner) -> None:
    assert cli("--version").out == f"prefixaudit {prefixaudit.__version__}\n"


def test_without_arguments_the_help_goes_to_stderr(cli: Runner) -> None:
    ran = cli()

    assert (ran.code, ran.out) == (2, "")
    assert "Usage: prefixaudit" in ran.err


def test_unknown_command_names_the_nearest(cli: Runner) -> None:
    ran = cli("analyse")

    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean 'analyze'?" in ran.err


def test_wrong_option_is_a_usage_error(cli: Runner) -> None:
    ran = cli("analyze", "x.jsonl", "--block-size", "none")

    assert (ran.code, ran.out) == (2, "")
    assert "--block-size" in ran.err


def test_control_characters_of_an_argument_are_escaped(cli: Runner) -> None:
    ran = cli("analyze", "no\x1b[2Jsuch\nfile")

    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert "no\\x1b[2Jsuch" in ran.err


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli_app, "build", build)


def test_unexpected_error_names_its_type_and_hides_its_text(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_with(ValueError("SECRET-PROMPT"), monkeypatch)

    ran = cli("list")

    assert (ran.code, ran.out) == (3, "")
    assert "ValueError" in ran.err
    assert "SECRET-PROMPT" not in ran.err
    assert "Traceback" not in ran.err


def test_debug_shows_the_traceback(cli: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(ValueError("wrong"), monkeypatch)
    monkeypatch.setenv("PREFIXAUDIT_DEBUG", "1")

    with pytest.raises(ValueError, match="wrong"):
        cli("list")


def test_ctrl_c_leaves_an_incomplete_audit(cli: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(KeyboardInterrupt(), monkeypatch)

    ran = cli("list")

    assert ran.code == 3
    assert ran.err == "error: interrupted; the audit is incomplete\n"


def test_a_reader_that_leaves_is_no_crash() -> None:
    script = f"{sys.executable} -m prefixaudit explain engine:vllm@0.33.0 | true"

    ran = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)

    assert ran.stderr == ""


def test_full_disk_is_reported(cli: Runner) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")

    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "prefixaudit", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ran.returncode == 3
    assert ran.stderr == "error: No space left on device\n"


def test_kernels_find_room_where_nothing_can_be_written(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setattr("atexit.register", lambda function, *args, **options: None)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR")

    cli("--version")

    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
