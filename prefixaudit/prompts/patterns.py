"""Says of a pre-tokenizer's regular expression which characters its matches can join.

Not a matcher. A pattern becomes a Glushkov automaton: one position a character class, and which
position can follow which. From it we read, for two neighbouring characters of a text, whether any
match can hold both of them (`joins`), whether a match that ends behind the first one looks at the
second (`looks_past`), and whether a character always starts a match of its own
(`always_matches`). Where the pattern can't be read for sure (see `pattern_reading`), an
UndecidableError is raised, and the caller cuts nothing there.
"""

from __future__ import annotations

from prefixaudit.prompts.pattern_reading import CharacterClass, PatternReader, UndecidableError


class PatternPositions:
    """The positions of one pattern. Raises UndecidableError where it can't be read for sure."""

    def __init__(self, pattern: str) -> None:
        self._classes: list[CharacterClass] = []
        self._assertions: set[int] = set()
        part = PatternReader(pattern, self._classes, self._assertions).read()
        if part.nullable or part.first & self._assertions:
            raise UndecidableError("a pattern that can match nothing")
        follows = _closed_over(part.follows, self._assertions)
        # Sets of positions are the bits of a number.
        self._follows = [0] * len(self._classes)
        self._before_assertions = 0
        for x, y in follows:
            if x in self._assertions:
                continue
            if y in self._assertions:
                self._before_assertions |= 1 << x
            else:
                self._follows[x] |= 1 << y
        self._alone = sum(1 << x for x in (part.first & part.last) - self._assertions)
        self._first = sum(1 << x for x in part.first)
        before_end = {x for x, y in follows if y in self._assertions & part.last}
        self._last = sum(1 << x for x in part.last | before_end)
        self._positions: dict[str, int] = {}
        self._reached: dict[int, int] = {}

    def kind(self, character: str) -> int:
        """Return a number that is equal for characters which the pattern doesn't tell apart."""
        positions = self._positions.get(character)
        if positions is None:
            positions, position = 0, 1
            for holds in self._classes:
                if holds(character):
                    positions |= position
                position <<= 1
            self._positions[character] = positions
        return positions

    def joins(self, left: str, right: str) -> bool:
        """Say whether an attempt to match can consume `left` and then `right`."""
        return bool(self._reach(self.kind(left)) & self.kind(right))

    def joins_before(self, left: str, right: str, behind: str) -> bool:
        """Say whether a match can hold `left` and then `right`, and end there or go on with one
        of the characters in `behind`."""
        joined = self._reach(self.kind(left)) & self.kind(right)
        reached = self._reach(joined)
        return bool(joined & self._last) or any(reached & self.kind(c) for c in behind)

    def _reach(self, positions: int) -> int:
        """Return the positions that can follow one of `positions`."""
        reached = self._reached.get(positions)
        if reached is None:
            reached = 0
            for x, following in enumerate(self._follows):
                if positions >> x & 1:
                    reached |= following
            self._reached[positions] = reached
        return reached

    def looks_past(self, left: str) -> bool:
        """Say whether a lookahead can be evaluated right behind `left`."""
        return bool(self.kind(left) & self._before_assertions)

    def may_end_between(self, left: str, right: str) -> bool:
        """Say whether a match can end behind `left` or start at `right`."""
        return bool(self.kind(left) & self._last or self.kind(right) & self._first)

    def looks_ahead(self) -> bool:
        """Say whether there is a lookahead at all."""
        return bool(self._assertions)

    def always_matches(self, character: str) -> bool:
        """Say whether a match always exists that starts at `character`, whatever follows."""
        return bool(self.kind(character) & self._alone)


def literal(text: str) -> str:
    """Return a pattern that matches exactly `text`."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def _closed_over(follows: set[tuple[int, int]], assertions: set[int]) -> set[tuple[int, int]]:
    """Add the pairs that meet across an assertion, which consumes nothing."""
    closed = set(follows)
    while True:
        through = {
            (x, z) for x, y in closed if y in assertions for y2, z in closed if y2 == y
        } - closed
        if not through:
            return closed
        closed |= through
