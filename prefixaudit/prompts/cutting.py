"""Cuts a text at the boundaries that its tokenizer allows, so that equal texts give equal parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from prefixaudit.prompts.boundaries import Boundaries

# A message of common length is one part: fewer calls, each with a price of its own. A longer text
# is cut at line ends, and a line longer than _LONG_CHARACTERS after words as well, so that a text
# that grew or changed in one place is the same parts elsewhere.
_WHOLE_CHARACTERS = 2048
_SHORT_CHARACTERS = 96
_LONG_CHARACTERS = 768
_STEP_CHARACTERS = 384


class Cutter:
    """Cuts texts: at added tokens, long texts at line ends too, and long lines after words."""

    def __init__(self, boundaries: Boundaries) -> None:
        self.boundaries = boundaries
        self._dropped = int(boundaries.drops_space)
        self.cuts = bool(boundaries.cut_at or boundaries.pairs)
        tokens = boundaries.added_tokens if boundaries.cut_at else ()
        self._added = _finder(tokens) if tokens else None
        self._token_ids = {
            token: np.uint32(number).tobytes()
            for token, number in boundaries.added_tokens.items()
            if token in boundaries.cut_at
        }
        self._keeps_token = boundaries.first_is_special
        line_ends, spaces = (
            "".join(
                boundaries.alike.get(left, left)
                for left, right in sorted(boundaries.pairs)
                if right == end
            )
            for end in "\n "
        )
        self._line_end = _boundary_pattern({"\n": line_ends})
        self._word_end = _boundary_pattern(
            {"\n": line_ends, " ": spaces},
            never_behind=boundaries.never_behind if boundaries.drops_space else frozenset(),
        )

    def parts(self, text: str) -> list[str | bytes]:
        """Return the text's parts in order: text, or the bytes of an added token's id."""
        parts: list[str | bytes] = []
        start = 0
        if self._added is not None:
            token_ids = self._token_ids
            for match in self._added.finditer(text):
                ids = token_ids.get(match.group())
                if ids is None:
                    continue
                token_start, token_end = match.span()
                if token_start > start:
                    self._add_pieces(parts, text, start, token_start)
                if self._keeps_token:
                    start = token_start
                else:
                    parts.append(ids)
                    start = token_end
        if start < len(text):
            self._add_pieces(parts, text, start, len(text))
        return parts

    def _add_pieces(self, parts: list[str | bytes], text: str, start: int, end: int) -> None:
        """Cut text[start:end], if it is long, at line ends, and long lines after words."""
        if end - start <= _WHOLE_CHARACTERS:
            parts.append(text[start:end])
            return
        if self._line_end is not None:
            for match in self._line_end.finditer(text, start + 1, end):
                cut = match.start()
                length = cut - start
                if length < _SHORT_CHARACTERS:
                    continue
                if length > _LONG_CHARACTERS:
                    self._add_long_piece(parts, text, start, cut)
                else:
                    parts.append(text[start:cut])
                start = cut
        if end - start > _LONG_CHARACTERS:
            self._add_long_piece(parts, text, start, end)
        else:
            parts.append(text[start:end])

    def _add_long_piece(self, parts: list[str | bytes], text: str, start: int, end: int) -> None:
        if self._word_end is not None:
            while end - start > _LONG_CHARACTERS:
                # Something is left behind the space where the space itself is dropped.
                stop = end - self._dropped
                match = self._word_end.search(text, start + _STEP_CHARACTERS, stop)
                if match is None:
                    break
                parts.append(text[start : match.start()])
                start = match.start() + self._dropped
        parts.append(text[start:end])


def _boundary_pattern(
    lefts: Mapping[str, str], *, never_behind: frozenset[str] = frozenset()
) -> re.Pattern[str] | None:
    """Match the right character of a boundary, wherever one of its left characters precedes
    and none of `never_behind` follows."""
    sides = {right: left for right, left in lefts.items() if left}
    if not sides:
        return None
    rights = "".join(map(re.escape, sides))
    pairs = "|".join(
        f"[{''.join(map(re.escape, left))}]{re.escape(right)}" for right, left in sides.items()
    )
    start = rights if len(sides) == 1 else f"[{rights}]"
    unless = f"(?![{''.join(map(re.escape, sorted(never_behind)))}])" if never_behind else ""
    return re.compile(f"{start}(?<={pairs}){unless}")


def _finder(words: Iterable[str]) -> re.Pattern[str]:
    """Find the longest of `words` at the leftmost place, like Aho-Corasick."""
    try:
        return re.compile(_any_of(words))
    except RecursionError:  # a word of a thousand characters: slower, but the same
        return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern in which words with a common start share it.

    A vocabulary of thousands stays fast that way.
    """
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return _pattern_of(tree)


def _pattern_of(tree: Mapping[str, Any]) -> str:
    ends = "" in tree
    branches = [
        re.escape(character) + _pattern_of(below) for character, below in tree.items() if character
    ]
    if not branches:
        return ""
    if len(branches) == 1 and not ends:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("?" if ends else "")
