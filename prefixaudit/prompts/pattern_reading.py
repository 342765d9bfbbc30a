"""Reads a pre-tokenizer's regular expression: its character classes, and which can follow which.

The syntax is the part of Oniguruma's that `tokenizer.json` files use. What isn't known for sure
(anchors, lookbehind, long lookahead, back references, unknown properties) raises UndecidableError.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

CharacterClass = Callable[[str], bool]

_MAX_COPIES = 8
_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(code) for code in range(0x2000, 0x200B)
}


class UndecidableError(Exception):
    """The pattern holds something whose effect on neighbouring characters isn't known."""


@dataclass(slots=True)
class Part:
    """A piece of the automaton: can it be empty, where it starts and ends, what follows what."""

    nullable: bool
    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    follows: set[tuple[int, int]] = field(default_factory=set)


class PatternReader:
    """Reads one pattern; adds its character classes, and the numbers of those that are lookaheads.

    A lookahead is a position that holds no character.
    """

    def __init__(self, pattern: str, classes: list[CharacterClass], assertions: set[int]) -> None:
        self._pattern = pattern
        self._place = 0
        self._ignore_case = False
        self._classes = classes
        self._assertions = assertions

    def read(self) -> Part:
        """Return the whole pattern's part. Raises UndecidableError."""
        part = self._alternatives()
        if self._place != len(self._pattern):
            raise UndecidableError(f"unexpected `{self._peek()}`")
        return part

    # --- characters of the pattern

    def _peek(self, count: int = 1) -> str:
        return self._pattern[self._place : self._place + count]

    def _take(self, count: int = 1) -> str:
        taken = self._peek(count)
        if len(taken) < count:
            raise UndecidableError("the pattern ends too early")
        self._place += count
        return taken

    def _accept(self, text: str) -> bool:
        if self._peek(len(text)) != text:
            return False
        self._place += len(text)
        return True

    def _until(self, end: str) -> str:
        stop = self._pattern.find(end, self._place)
        if stop < 0:
            raise UndecidableError(f"`{end}` is missing")
        taken = self._pattern[self._place : stop]
        self._place = stop + len(end)
        return taken

    # --- structure

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return Part(
            nullable=any(part.nullable for part in parts),
            first=set().union(*(part.first for part in parts)),
            last=set().union(*(part.last for part in parts)),
            follows=set().union(*(part.follows for part in parts)),
        )

    def _sequence(self) -> Part:
        whole = Part(nullable=True)
        while self._peek() not in ("", "|", ")"):
            whole = _joined(whole, self._repeated())
        return whole

    def _repeated(self) -> Part:
        start = self._place
        part = self._atom()
        end_of_atom = self._place
        at_least, repeats = 1, False
        if self._accept("*"):
            at_least, repeats = 0, True
        elif self._accept("+"):
            at_least, repeats = 1, True
        elif self._accept("?"):
            at_least, repeats = 0, False
        elif self._peek() == "{":
            at_least, repeats = self._counted()
        else:
            return part
        if self._peek() in ("?", "+"):  # lazy or possessive: the same characters meet
            self._take()
        if self._peek() in ("*", "+", "{", "?"):
            raise UndecidableError("a quantifier of a quantifier")
        if repeats:
            part.follows |= {(x, y) for x in part.last for y in part.first}
        end = self._place
        for _ in range(at_least - 1):
            # Read the atom again, so that a match of one character isn't taken for a whole one.
            self._place = start
            copy = self._atom()
            assert self._place == end_of_atom
            part = _joined(part, copy)
        self._place = end
        if repeats and at_least > 1:
            part.follows |= {(x, y) for x in part.last for y in part.first}
        if at_least == 0:
            part.nullable = True
        return part

    def _counted(self) -> tuple[int, bool]:
        self._take()
        low, comma, high = self._until("}").partition(",")
        if not (low or comma) or not all(bound.isdecimal() for bound in (low, high) if bound):
            raise UndecidableError("a brace that isn't a count")
        at_least = int(low or 0)
        at_most = int(high) if high else (at_least if not comma else None)
        if at_least > _MAX_COPIES:
            raise UndecidableError(f"more than {_MAX_COPIES} repetitions")
        return at_least, at_most is None or at_most > 1

    def _atom(self) -> Part:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._position(self._class())
        if character == ".":
            return self._position(lambda c: c != "\n")
        if character == "\\":
            return self._position(self._escape(in_class=False))
        if character in "^$*+?{":
            raise UndecidableError(f"`{character}` where a character was expected")
        return self._position(self._one(character))

    def _group(self) -> Part:
        outer_case = self._ignore_case
        if self._accept("?="):
            return self._lookahead()
        if self._accept("?!"):
            return self._lookahead()
        if self._accept("?i:"):
            self._ignore_case = True
        elif self._accept("?i)"):
            # The rest of the enclosing group; only safe to read at the very start.
            if self._place != len("(?i)"):
                raise UndecidableError("a switch in the middle of the pattern")
            self._ignore_case = True
            return Part(nullable=True)
        elif not (self._accept("?:") or self._accept("?>")) and self._peek() == "?":
            raise UndecidableError(f"group `({self._peek(3)}`")
        part = self._alternatives()
        self._take_closing()
        self._ignore_case = outer_case
        return part

    def _lookahead(self) -> Part:
        inside = self._alternatives()
        self._take_closing()
        if inside.follows or inside.nullable:
            raise UndecidableError("a lookahead at more than one character")
        place = len(self._classes)
        self._classes.append(lambda _: False)
        self._assertions.add(place)
        return Part(nullable=False, first={place}, last={place})

    def _take_closing(self) -> None:
        if not self._accept(")"):
            raise UndecidableError("`)` is missing")

    def _position(self, character_class: CharacterClass) -> Part:
        place = len(self._classes)
        self._classes.append(character_class)
        return Part(nullable=False, first={place}, last={place})

    # --- character classes

    def _one(self, character: str) -> CharacterClass:
        if self._ignore_case:
            return lambda c: character in _cases(c)
        return lambda c: c == character

    def _class(self) -> CharacterClass:
        negated = self._accept("^")
        members: list[CharacterClass] = []
        operands: list[list[CharacterClass]] = [members]
        at_start = True
        while not self._accept("]") or at_start:
            if at_start and self._pattern[self._place - 1] == "]":
                raise UndecidableError("an empty character class")
            at_start = False
            if self._accept("&&"):
                operands.append([])
                continue
            operands[-1].append(self._class_member())
        unions = [_union(operand) for operand in operands]
        inside = unions[0] if len(unions) == 1 else _intersection(unions)
        if self._ignore_case:
            inside = _any_case(inside)
        return (lambda c: not inside(c)) if negated else inside

    def _class_member(self) -> CharacterClass:
        if self._peek(2) == "[:":
            raise UndecidableError("a POSIX class")
        if self._accept("["):
            return self._class()
        low: str | CharacterClass = self._class_character()
        if self._peek() == "-" and self._peek(2) != "-]" and isinstance(low, str):
            self._take()
            high = self._class_character()
            if not isinstance(high, str):
                raise UndecidableError("a range that ends in a class")
            start, stop = low, high
            return lambda c: start <= c <= stop
        if isinstance(low, str):
            character = low
            return lambda c: c == character
        return low

    def _class_character(self) -> str | CharacterClass:
        character = self._take()
        if character != "\\":
            return character
        code = self._literal_escape()
        return code if code is not None else self._escape(in_class=True)

    def _literal_escape(self) -> str | None:
        """Read an escape that stands for one character, or nothing at all."""
        kind = self._peek()
        simple = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
        if kind in simple:
            self._take()
            return simple[kind]
        if self._accept("x{"):
            return _character(self._until("}"))
        if self._accept("u{"):
            return _character(self._until("}"))
        if kind == "x":
            self._take()
            return _character(self._take(2))
        if kind == "u":
            self._take()
            return _character(self._take(4))
        if kind and not kind.isalnum():
            return self._take()
        return None

    def _escape(self, *, in_class: bool) -> CharacterClass:
        if not in_class and (code := self._literal_escape()) is not None:
            return self._one(code)
        kind = self._take()
        if kind in "sS":
            return _perhaps_not(lambda c: c in _SPACES, negated=kind == "S")
        if kind in "dD":
            return _perhaps_not(lambda c: unicodedata.category(c) == "Nd", negated=kind == "D")
        if kind in "wW":
            return _perhaps_not(_is_word, negated=kind == "W")
        if kind in "pP":
            name = self._until("}") if self._accept("{") else self._take()
            negated = kind == "P"
            if name.startswith("^"):
                name, negated = name[1:], not negated
            return _perhaps_not(_property(name), negated=negated)
        raise UndecidableError(f"escape `\\{kind}`")


def _joined(left: Part, right: Part) -> Part:
    return Part(
        nullable=left.nullable and right.nullable,
        first=left.first | (right.first if left.nullable else set()),
        last=right.last | (left.last if right.nullable else set()),
        follows=left.follows | right.follows | {(x, y) for x in left.last for y in right.first},
    )


def _union(members: list[CharacterClass]) -> CharacterClass:
    if len(members) == 1:
        return members[0]

    def union(character: str) -> bool:
        for member in members:  # noqa: SIM110  `any` takes three times as long
            if member(character):
                return True
        return False

    return union


def _intersection(members: list[CharacterClass]) -> CharacterClass:
    return lambda c: all(member(c) for member in members)


def _perhaps_not(inside: CharacterClass, *, negated: bool) -> CharacterClass:
    return (lambda c: not inside(c)) if negated else inside


def _any_case(inside: CharacterClass) -> CharacterClass:
    return lambda c: any(map(inside, _cases(c)))


@lru_cache(4096)
def _cases(character: str) -> frozenset[str]:
    """Return the characters that are the same but for their case."""
    c = character
    return frozenset(v for v in (c, c.lower(), c.upper(), c.title(), c.casefold()) if len(v) == 1)


def _character(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        raise UndecidableError("a code point that isn't one") from None


def _is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or unicodedata.category(character) == "Pc"


_LONG_NAMES = {
    "Letter": "L",
    "Mark": "M",
    "Number": "N",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Decimal_Number": "Nd",
}
# Scripts whose characters are all outside ASCII; nothing more is asked about them.
_FOREIGN_SCRIPTS = frozenset(
    {"Han", "Hiragana", "Katakana", "Hangul", "Thai", "Cyrillic", "Greek", "Arabic", "Hebrew"}
)


def _property(name: str) -> CharacterClass:
    name = _LONG_NAMES.get(name, name)
    if name in _FOREIGN_SCRIPTS:
        return _outside_ascii
    known = {"L", "M", "N", "P", "S", "Z", "C"}
    if name[:1] not in known or len(name) > 2:
        raise UndecidableError(f"property `{name}`")
    return lambda c: unicodedata.category(c).startswith(name)


def _outside_ascii(character: str) -> bool:
    if character.isascii() or character == "\u2581":  # the sentencepiece space is in no script
        return False
    raise UndecidableError("a script property of a character outside ASCII")
