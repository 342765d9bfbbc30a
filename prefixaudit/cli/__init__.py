"""The command line: options, streams, exit codes.

`main` is the only place that ends the process. stdout carries a command's result and nothing
else; notes, progress and errors go to stderr. Exit codes: 0 clean, 1 findings or a budget missed,
2 wrong usage or configuration, 3 the audit is incomplete.

Commands are modules of `prefixaudit.cli.commands`, found by name: see its docstring.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from prefixaudit.errors import PrefixAuditError

EXIT_INCOMPLETE = 3
EXIT_USAGE = 2


def main() -> None:
    """Run the command line on `sys.argv` and end the process with its exit code."""
    # Values live long here and hardly any form cycles: at the default pace the collector takes a
    # tenth of a run on a large log.
    gc.set_threshold(1_000_000, 50, 50)
    # Threads that read ahead wait for the interpreter's lock; let them have it soon.
    sys.setswitchinterval(0.0005)
    # numpy starts a thread a core for linear algebra, of which there is none here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run(sys.argv[1:])
    # The interpreter ends with several looks at every object for cycles; all memory goes anyway.
    gc.freeze()
    raise SystemExit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error has become a message on stderr."""
    from prefixaudit.cli import streams

    streams.set_up()
    _find_room_for_kernels()
    try:
        code = _run_command(arguments)
        sys.stdout.flush()
    except PrefixAuditError as error:
        streams.complain(str(error), hint=error.hint)
        code = error.exit_code
    except BrokenPipeError:
        # The reader left (`| head`): what it saw was cut, and it doesn't want a message.
        _silence_stdout()
        code = EXIT_INCOMPLETE
    except KeyboardInterrupt:
        streams.complain("interrupted; the audit is incomplete")
        code = EXIT_INCOMPLETE
    except MemoryError:
        streams.complain("out of memory; the audit is incomplete")
        code = EXIT_INCOMPLETE
    except OSError as error:
        if os.environ.get("PREFIXAUDIT_DEBUG") == "1":
            raise
        name = f"{error.filename}: " if error.filename is not None else ""
        streams.complain(f"{name}{error.strerror or type(error).__name__}")
        code = EXIT_INCOMPLETE
    except Exception as error:
        if os.environ.get("PREFIXAUDIT_DEBUG") == "1":
            raise
        # The exception's own text is left out: it may quote the log.
        place = _innermost_place(error)
        streams.complain(
            f"internal error: {type(error).__name__} at {place}; the audit is incomplete",
            hint="this is a fault of prefixaudit; PREFIXAUDIT_DEBUG=1 shows the traceback, "
            "which may quote the log",
        )
        code = EXIT_INCOMPLETE
    return code


def _run_command(arguments: Sequence[str]) -> int:
    import typer

    from prefixaudit.cli import streams
    from prefixaudit.cli.app import build

    try:
        code = build(arguments)(list(arguments), prog_name="prefixaudit", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
            print(context.get_help(), file=sys.stderr)
            return EXIT_USAGE
        usage = context.get_usage() if context is not None else None
        streams.complain(error.format_message(), usage=usage)
        return EXIT_USAGE
    if code == 130:  # how typer reports Ctrl-C
        raise KeyboardInterrupt
    return int(code or 0)


def _find_room_for_kernels() -> None:
    """Where neither the package nor the home folder can be written, cache kernels for this run.

    Compiled kernels are loaded with pickle: the folder has to be nobody else's, so it is made anew.
    """
    places = (Path(__file__).parent.parent, os.environ.get("HOME", os.curdir))
    if "NUMBA_CACHE_DIR" in os.environ or any(os.access(place, os.W_OK) for place in places):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="prefixaudit-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _silence_stdout() -> None:
    """Point stdout at the null device, so that the interpreter's last flush can't fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _innermost_place(error: BaseException) -> str:
    """Return module:line of the frame of this package that is nearest to where it was raised."""
    place = "unknown place"
    trace = error.__traceback__
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        if name.startswith("prefixaudit"):
            place = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
