"""Keeps the ids of text parts that were encoded before, in bounded memory.

Two generations: what is used moves to the young one, and when the young one is full the old one
is dropped. That is nearly least-recently-used, at the price of one dictionary look-up.
"""

from __future__ import annotations

import sys
from typing import Final

# A bytes object without its content, and the places of both in a dictionary.
_OVERHEAD_BYTES: Final = 33 + 104


class SegmentCache:
    """Maps text to its ids (uint32 as bytes), in at most about `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._half_bytes = max(1, max_bytes // 2)
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._young_bytes = 0

    def get(self, text: str) -> bytes | None:
        """Return the ids of `text` as the bytes of a uint32 array, or None."""
        ids = self._young.get(text)
        if ids is None:
            ids = self._old.get(text)
            if ids is not None:
                self.put(text, ids)
        return ids

    def put(self, text: str, ids: bytes) -> None:
        """Keep the ids of `text`."""
        self._young[text] = ids
        self._young_bytes += sys.getsizeof(text) + len(ids) + _OVERHEAD_BYTES
        if self._young_bytes > self._half_bytes:
            self._old = self._young
            self._young = {}
            self._young_bytes = 0

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._young_bytes = {}, {}, 0
