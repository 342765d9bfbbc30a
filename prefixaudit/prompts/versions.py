"""Versions of servers, to compare."""

from __future__ import annotations

import re
from typing import TypeAlias

Version: TypeAlias = tuple[int, int, int]


def parsed_version(text: str) -> Version | None:
    """Return `0.10.2.post1` as (0, 10, 2); None for what isn't a version."""
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return None if match is None else (int(match[1]), int(match[2] or 0), int(match[3] or 0))


def reached(version: Version | None, *, since: Version) -> bool:
    """Say whether a version has what came with another one; None is the newest known."""
    return version is None or version >= since
