"""Tables of text for a terminal: columns as wide as their cells, the last one folded."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from prefixaudit.printable import printable

WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Column heads and rows of text; `right` are the columns of numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()

    def as_values(self) -> list[dict[str, str]]:
        """Return one object a row, keyed by the heads with `_` for spaces."""
        keys = [head.replace(" ", "_") for head in self.heads]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


def lines_of(table: Table, *, width: int = WIDTH) -> list[str]:
    """Return the table as lines; only the last column is folded to the width."""
    cells = [table.heads, *(tuple(printable(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.heads))]
    lines: list[str] = []
    for row in cells:
        left = "  ".join(
            cell.rjust(size) if column in table.right else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row[:-1], widths[:-1], strict=True))
        )
        if left:
            left += "  "
        if len(table.heads) - 1 in table.right:
            lines.append(f"{left}{row[-1].rjust(widths[-1])}")
            continue
        room = max(20, width - len(left))
        folded = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        lines.append(f"{left}{folded[0]}".rstrip())
        lines.extend(" " * len(left) + part for part in folded[1:])
    return lines


def labelled(rows: Sequence[tuple[str, str]], *, width: int = WIDTH) -> list[str]:
    """Return (label, text) rows, the texts folded beside their labels."""
    size = min(30, max((len(label) for label, _ in rows), default=0))
    lines: list[str] = []
    for label, text in rows:
        name = printable(label)
        if len(name) > size:
            lines.append(f"  {name}")
            name = ""
        head = f"  {name:<{size}}  " if size else "  "
        folded = textwrap.wrap(printable(text), max(30, width - len(head)), break_on_hyphens=False)
        folded = folded or [""]
        lines.append(f"{head}{folded[0]}".rstrip())
        lines.extend(" " * len(head) + part for part in folded[1:])
    return lines
