"""How lines of a terminal report are folded and marked."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Columns, and whether there is colour."""

    width: int
    colour: bool

    def wrapped(self, text: str, *, indent: int = 2) -> list[str]:
        """Fold at words, and long words (paths, ids) anywhere: nothing is cut off."""
        return textwrap.wrap(
            text,
            self.width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
            drop_whitespace=True,
        ) or [""]

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def mark(self, text: str) -> str:
        return f"\x1b[36m{text}\x1b[0m" if self.colour else text
