"""UNKNOWN: not recorded. It is not None (known to be absent) and never a default."""

from __future__ import annotations

import enum
from typing import Final, NoReturn, TypeAlias, TypeVar


class Unknown(enum.Enum):
    """The type of UNKNOWN; an enum, so that `is UNKNOWN` narrows a union for the type checker."""

    UNKNOWN = "unknown"

    # Enum's own hash is Python code, and identities are hashed once a request.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> NoReturn:
        raise TypeError("UNKNOWN is neither true nor false; compare with `is UNKNOWN`")


UNKNOWN: Final = Unknown.UNKNOWN

T = TypeVar("T")

Known: TypeAlias = T | None | Unknown
"""A value, None where it is known that there is none, or UNKNOWN where nothing was recorded."""
