"""Where output goes: the result to stdout or a file, everything else to stderr, all of it escaped.

Text from outside (paths, request ids, reasons) is never markup; control characters are escaped
before they reach a terminal.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

from prefixaudit.errors import UsageError
from prefixaudit.printable import printable_lines


def set_up() -> None:
    """Make stdout and stderr print any character: what the encoding lacks becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(message: str) -> None:
    """Print one note to stderr."""
    print(printable_lines(message), file=sys.stderr)


def complain(message: str, *, hint: str | None = None, usage: str | None = None) -> None:
    """Print an error (and one hint) to stderr."""
    try:
        if usage is not None:
            print(printable_lines(usage), file=sys.stderr)
        print(f"error: {printable_lines(message)}", file=sys.stderr)
        if hint is not None:
            print(f"hint: {printable_lines(hint)}", file=sys.stderr)
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads stderr either; the exit code still tells


def wants_colour(colour: str, output: Path | None) -> bool:
    """Decide on colour: `--color`, then NO_COLOR, then whether stdout is a terminal."""
    if colour == "always":
        return True
    if colour == "never" or output is not None or os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def check_outputs(*outputs: Path | None) -> None:
    """Raise UsageError where a file to be written can't be: before the work, not after it."""
    for path in outputs:
        if path is None or str(path) == "-":
            continue
        if path.is_dir():
            raise UsageError(f"{path}: is a folder; expected a file to write")
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent}: no such folder to write {path.name} to")


def write_result(text: str, output: Path | None) -> None:
    """Write a command's result to stdout, or to `output` as a whole or not at all."""
    if not text.endswith("\n"):
        text += "\n"
    if output is None or str(output) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_file(output, text.encode("utf-8", errors="backslashreplace"))


def write_file(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; a reader never sees half of it.

    Raises UsageError where the folder is missing or can't be written. What isn't a plain file
    (`/dev/null`, a named pipe) is written in place.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.write(content)
            return
        path = path.resolve()  # through a symbolic link: the link stays
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            umask = os.umask(0)
            os.umask(umask)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}") from error


class ProgressLine:
    """One line on stderr that tells how far a long run is; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._start_s = time.monotonic()
        self._next_s = self._start_s + 0.5
        self._dirty = False

    def update(
        self, num_bytes: int, num_bytes_total: int | None, num_requests: int, num_tokens: int
    ) -> None:
        """Redraw the line, at most four times a second."""
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + 0.25
        rate = num_tokens / max(now - self._start_s, 1e-9)
        line = f"{num_requests:,} requests  {num_tokens / 1e6:,.1f} M tokens  {rate:,.0f} tokens/s"
        if num_bytes_total:
            share = min(num_bytes / num_bytes_total, 1.0)
            bar = "#" * int(24 * share)
            line = f"[{bar:<24}] {share:4.0%}  {line}"
        sys.stderr.write(f"\r\x1b[K{line[:99]}")
        sys.stderr.flush()
        self._dirty = True

    def stage(self, name: str) -> None:
        """Say which stage runs now."""
        if self._shown and time.monotonic() >= self._start_s + 0.5:
            sys.stderr.write(f"\r\x1b[K{name} ...")
            sys.stderr.flush()
            self._dirty = True

    def close(self) -> None:
        """Take the line away."""
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._dirty = False
