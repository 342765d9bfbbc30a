"""Public names of a package that are imported when they are first used.

For packages whose modules need numba, or are many: importing the package for something else, as
`--help` does, then costs nothing, and a run imports what it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which finds each name of `homes` in the module named there.

    It raises AttributeError for any other name, as Python itself does.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find
