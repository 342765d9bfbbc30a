"""Counts and shares as words, alike in every report and message."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s unless there is one of it."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float | None) -> str:
    """Return a share of 0..1 in percent, "-" for None."""
    return "-" if share is None else f"{100 * share:.2f} %"
