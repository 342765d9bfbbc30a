"""What each step of a pre-tokenizer does between two neighbouring characters.

Mirrors the pre-tokenizers of tokenizers 0.22 and 0.23. What isn't known for sure raises
UndecidableError.
"""

from __future__ import annotations

import contextlib
import string
import unicodedata
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from prefixaudit.prompts.pattern_reading import UndecidableError
from prefixaudit.prompts.patterns import PatternPositions, literal

SPACE_MARK = "\u2581"

# The pattern that `ByteLevel(use_regex=True)` has built in (GPT-2).
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# How most patterns end: of a run of whitespace before something else, all but the last character.
_RUN = r"|\s+(?!\S)|\s+"
# What comes right before, so that no run that holds a line end gets there.
_LINE_ENDS = (r"|\s*[\r\n]+", r"|\s*[\r\n]")
_WORDS = r"\w+|[^\w\s]+"

# How `ByteLevel` writes these bytes; printable ASCII stays what it is.
_BYTES_AS_CHARACTERS = {" ": "\u0120", "\n": "\u010a", "\t": "\u0109", "\r": "\u010d"}


class Step:
    """One step, asked as (left, right) what it does between two characters.

    True: always splits there; False: neither split nor disturbed; None: not certain.
    """

    def __call__(self, left: str, right: str) -> bool | None:
        raise NotImplementedError

    def in_run(self, left: str, right: str, behind: str) -> bool | None:
        """Say the same of two whitespace characters, if one of `behind` follows and is still there.

        `behind` are all characters that may follow, none of them whitespace.
        """
        return self(left, right)

    def may_split(self, left: str, right: str) -> bool:
        """Say whether it isn't certain that the step never splits between two characters."""
        return self(left, right) is not False

    def kind(self, character: str) -> Hashable:
        """Return a value that is equal for characters which the step treats alike."""
        raise NotImplementedError

    def written(self, character: str) -> str:
        """Return how the next step sees a character that was this one."""
        return character


class _Pattern(Step):
    def __init__(self, pattern: str, behavior: str, *, invert: bool) -> None:
        self._positions = PatternPositions(pattern)
        if invert and behavior not in ("Isolated", "Removed"):
            raise UndecidableError(f"an inverted split that is {behavior}")
        self._behavior = behavior
        self._before_run: PatternPositions | None = None
        before = _without_end(pattern, _RUN)
        if before is not None and behavior == "Isolated" and not invert:
            self._takes_line_ends = any(_without_end(before, end) is not None for end in _LINE_ENDS)
            with contextlib.suppress(UndecidableError):  # then it isn't an alternative of the whole
                self._before_run = PatternPositions(before)

    def __call__(self, left: str, right: str) -> bool | None:
        positions = self._positions
        if self._before_run is not None and self._takes_line_ends and left in "\r\n":
            # Whitespace before a line end never gets to the run's own lookahead.
            positions = self._before_run
        if positions.joins(left, right) or positions.looks_past(left):
            return None
        if self._behavior in ("Isolated", "Removed"):
            return positions.always_matches(left) or positions.always_matches(right)
        if self._behavior == "MergedWithPrevious":
            return positions.always_matches(left)
        if self._behavior == "MergedWithNext":
            return positions.always_matches(right)
        return False

    def may_split(self, left: str, right: str) -> bool:
        return self._positions.may_end_between(left, right)

    def in_run(self, left: str, right: str, behind: str) -> bool | None:
        # What comes before `\s+(?!\S)` can't hold both, and that matches as much as leaves one
        # character of whitespace behind: all up to `left`, here as at the end of a text.
        before = self._before_run
        if before is None or before.looks_ahead() or before.joins_before(left, right, behind):
            return self(left, right)
        return True

    def kind(self, character: str) -> Hashable:
        return self._positions.kind(character)


def _without_end(pattern: str, end: str) -> str | None:
    """Return the pattern without its last alternatives, if they are `end` (which starts with |)."""
    rest = pattern.removesuffix(end)
    num_backslashes = len(rest) - len(rest.rstrip("\\"))
    return rest if pattern.endswith(end) and num_backslashes % 2 == 0 else None


class _ByteLevelPattern(_Pattern):
    def __init__(self) -> None:
        super().__init__(_BYTE_LEVEL, "Isolated", invert=False)

    def written(self, character: str) -> str:
        return _BYTES_AS_CHARACTERS.get(character, character)


class _ByteLevel(Step):
    def __call__(self, left: str, right: str) -> bool | None:
        return False

    def kind(self, character: str) -> Hashable:
        return None

    def written(self, character: str) -> str:
        return _BYTES_AS_CHARACTERS.get(character, character)


class _SingleCharacters(Step):
    """Splits at single characters of a kind, wherever they stand."""

    def __init__(self, name: str) -> None:
        self._splits_at_space = name in ("WhitespaceSplit", "BertPreTokenizer")
        self._splits_at_punctuation = name in ("Punctuation", "BertPreTokenizer")

    def __call__(self, left: str, right: str) -> bool | None:
        return self.kind(left) or self.kind(right)

    def kind(self, character: str) -> bool:
        return (self._splits_at_space and character.isspace()) or (
            self._splits_at_punctuation
            and (character in string.punctuation or unicodedata.category(character)[0] == "P")
        )


class _Digits(Step):
    def __call__(self, left: str, right: str) -> bool | None:
        return self.kind(left) != self.kind(right)

    def kind(self, character: str) -> bool:
        return character.isdigit()


class _Metaspace(Step):
    def __init__(self, step: Mapping[str, Any]) -> None:
        self._splits = bool(step.get("split", True))
        self._mark = str(step.get("replacement", SPACE_MARK))

    def __call__(self, left: str, right: str) -> bool | None:
        # Before a space nothing is put in front; without splitting, the vocabulary decides.
        return self._splits and self.kind(right)

    def kind(self, character: str) -> bool:
        return character in (" ", self._mark)

    def written(self, character: str) -> str:
        return self._mark if character == " " else character


def step_of(step: Mapping[str, Any]) -> Step:
    """Read one step of a decoded `tokenizer.json`. Raises UndecidableError for unknown ones."""
    name = step.get("type")
    if name == "Split":
        pattern = step.get("pattern") or {}
        behavior = str(step.get("behavior"))
        if isinstance(pattern.get("Regex"), str):
            return _Pattern(pattern["Regex"], behavior, invert=bool(step.get("invert")))
        if isinstance(pattern.get("String"), str):
            text = literal(pattern["String"])
            return _Pattern(text, behavior, invert=bool(step.get("invert")))
        raise UndecidableError("a split without a pattern")
    if name == "ByteLevel":
        return _ByteLevelPattern() if step.get("use_regex", True) else _ByteLevel()
    if name == "Whitespace":
        return _Pattern(_WORDS, "Removed", invert=True)
    if name in ("WhitespaceSplit", "BertPreTokenizer"):
        return _SingleCharacters(str(name))
    if name == "Punctuation":
        if step.get("behavior", "Isolated") not in ("Isolated", "Removed"):
            raise UndecidableError("punctuation that is merged with its neighbours")
        return _SingleCharacters(str(name))
    if name == "Digits":
        return _Digits()
    if name == "Metaspace":
        return _Metaspace(step)
    if name == "CharDelimiterSplit":
        return _Pattern(literal(str(step.get("delimiter"))), "Removed", invert=False)
    raise UndecidableError(f"pre-tokenizer {name}")


def flat(step: Mapping[str, Any] | None, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a pre-tokenizer or normalizer, whose sequences hold theirs under `key`."""
    if step is None:
        return
    if step.get("type") == "Sequence":
        for inner in step.get(key) or ():
            yield from flat(inner, key)
    else:
        yield step


def prepend_scheme(step: Mapping[str, Any]) -> str:
    """Return when a Metaspace puts a space in front: always, first or never."""
    scheme = step.get("prepend_scheme")
    if scheme is None:  # files written before tokenizers 0.15
        return "always" if step.get("add_prefix_space", True) else "never"
    return str(scheme)


def prepends(step: Mapping[str, Any]) -> bool:
    """Say whether a step can put something before a text that doesn't start with a space."""
    name = step.get("type")
    if name == "Metaspace":
        return prepend_scheme(step) != "never"
    return name == "ByteLevel" and bool(step.get("add_prefix_space", True))
