"""Python's own hash() of text as another process computes it, for engines that used it for keys.

The hash of text is keyed by PYTHONHASHSEED, so it's asked of a fresh interpreter that runs with
the engine's seed. The text goes there on standard input, never on its command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from typing import Final

from prefixaudit.chain.recipes._recipe import ProcessLocalHashError
from prefixaudit.errors import IncompleteError, UsageError

_PROGRAM: Final = "import sys; print(hash(sys.stdin.buffer.read().decode('utf-8')))"
_NONE_HASH: Final = 0xFCA86420
_CONSTANT_NONE: Final = (3, 12)
_SIPHASH13: Final = (3, 11)


class Hashed:
    """Stands in a tuple for an object whose hash is known, so that hash() of the tuple is right."""

    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        self._value = value

    def __hash__(self) -> int:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and other._value == self._value


@lru_cache(maxsize=1024)
def hash_of_text(text: str, seed: str, python: str | None) -> int:
    """Return hash(text) under PYTHONHASHSEED=seed, for CPython 3.11 or later (64 bit).

    Raises UsageError for a seed that Python doesn't take or an older Python, whose text hash is
    another function.
    """
    if seed == "random" or not seed.isascii() or not seed.isdigit() or int(seed) > 2**32 - 1:
        raise ProcessLocalHashError(
            "the seed fixes no hash of text; expected an integer from 0 to 4294967295"
        )
    if python is not None and _release(python) < _SIPHASH13:
        raise UsageError(f"Python {python} hashes text by another function than 3.11 and later")
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PROGRAM],
        input=text.encode("utf-8"),
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise IncompleteError("a Python interpreter with the engine's hash seed could not be run")
    return int(done.stdout)


def hash_of_none(python: str | None) -> int:
    """Return hash(None): constant from Python 3.12, an address before (UsageError)."""
    if python is None or _release(python) < _CONSTANT_NONE:
        raise ProcessLocalHashError(
            "the key holds None, whose hash differs by process before Python 3.12",
            hint="Say which Python the engine runs on, if it is 3.12 or later.",
        )
    return _NONE_HASH


def _release(python: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in python.split(".")[:2])
    except ValueError:
        raise UsageError(f"'{python}' is no Python version; expected one such as 3.12") from None
