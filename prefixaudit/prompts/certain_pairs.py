"""Says between which neighbouring characters a text may be cut, whatever stands around them.

That holds if, at every step of the pre-tokenizer, no match can hold both, no lookahead of a match
that ends between them sees the second one, and at least one step always splits there. Models
without a pre-tokenizer (BPE over the whole text) may be cut where no entry of the vocabulary holds
both characters side by side. An added token that holds both, and a normalizer that might change
what they are, rule a pair out.

Characters that all steps treat alike are decided together. Mirrors the pre-tokenizers and
normalizers of tokenizers 0.22 and 0.23.
"""

from __future__ import annotations

import itertools
import string
import sys
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.prompts.pattern_reading import UndecidableError
from prefixaudit.prompts.pre_tokenizers import SPACE_MARK, Step, flat, prepends, step_of

Pair: TypeAlias = tuple[str, str]

# Characters on the two sides of a possible cut.
_SPACES = "\n\r\t "
_PRINTED = string.ascii_letters + string.digits + string.punctuation
# Letters, punctuation and signs of alphabets with spaces between words, as far as all versions
# of Unicode agree on them: Latin to Cyrillic, Hebrew, Arabic, marks. Not those whose other case is
# two characters or an ASCII one, which patterns that ignore case may take for it.
_WIDE = "".join(
    character
    for codes in (
        range(0xA1, 0x250),
        range(0x370, 0x530),
        range(0x5D0, 0x5EB),
        range(0x620, 0x64B),
        range(0x2010, 0x2028),
        range(0x2030, 0x205F),
        range(0x20A0, 0x20C0),
    )
    for character in map(chr, codes)
    if unicodedata.category(character)[0] in "LPS"
    and all(
        len(other) == 1 and not other.isascii()
        for other in (character.casefold(), character.lower(), character.upper())
    )
)
# What printed ASCII characters may become with a combining mark behind them.
_LATIN = "".join(map(chr, (*range(0xC0, 0x250), *range(0x1E00, 0x1F00), 0x226E, 0x2260, 0x226F)))

_NORMALIZERS_BY_CHARACTER = frozenset({"Lowercase", "StripAccents", "Nmt", "BertNormalizer"})
_UNICODE_FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
# Those that leave spaces alone, and make none of a printed character.
_KEEPING_SPACES = _UNICODE_FORMS | {"Lowercase", "StripAccents"}
# What ASCII characters but letters become when a combining mark follows and forms are composed.
_COMPOSED = {"<": "\u226e", "=": "\u2260", ">": "\u226f"}
_NUM_SAMPLES_OF_A_KIND = 3


@dataclass(frozen=True, slots=True)
class CertainPairs:
    """Between which characters a text may be cut.

    pairs     (left, right), whatever stands around them
    alike     a character outside ASCII, and all those for which it stands in `pairs`
    in_runs   (left, right), both whitespace, if one of `behind_runs` follows
    samples   some pairs of every kind, to be proved
    """

    pairs: frozenset[Pair] = frozenset()
    alike: Mapping[str, str] = field(default_factory=dict)
    in_runs: frozenset[Pair] = frozenset()
    behind_runs: frozenset[str] = frozenset()
    samples: tuple[Pair, ...] = ()


def certain_pairs(
    tokenizer: Mapping[str, Any], tokens: Sequence[Mapping[str, Any]], *, space_first: bool
) -> CertainPairs:
    """Derive the pairs from a decoded `tokenizer.json` and its added tokens.

    `space_first`: the normalizer does nothing but write spaces as `▁` and put one in front of
    every text. Raises UndecidableError where something isn't known for sure.
    """
    configured = list(flat(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    steps = [step_of(step) for step in configured]
    normalizers = list(flat(tokenizer.get("normalizer"), "normalizers"))
    if space_first:
        normalizers = [step for step in normalizers if step["type"] == "Replace"]
    lefts_wanted = rights_wanted = _SPACES + _PRINTED
    some_strip = any(token.get("lstrip") or token.get("rstrip") for token in tokens)
    some_prepend = space_first or any(map(prepends, configured))
    if some_strip or some_prepend:
        lefts_wanted = _PRINTED  # a token that strips takes all the spaces beside itself
    if some_prepend:
        # What a step puts before a text that doesn't start with a space must not be put there.
        rights_wanted = " "
    left_sides = _sides(lefts_wanted, normalizers, steps, is_right=False)
    right_sides = _sides(rights_wanted, normalizers, steps, is_right=True)
    written = itertools.chain.from_iterable(side.written for side in left_sides + right_sides)
    vocabulary = _JoinedInVocabulary(tokenizer.get("model") or {}, written)
    contents = _contents(tokens)
    forbidden = _forbidden(contents, normalizers)
    # A token that takes the spaces behind itself would eat into what stands right of the cut.
    endings = {token["content"][-1] for token in tokens if token.get("rstrip")}

    alike, wide_lefts, wide_rights = _wide_sides(contents, normalizers, steps)
    left_sides += wide_lefts
    right_sides += wide_rights if rights_wanted != " " else []

    pairs: list[Pair] = []
    samples: list[Pair] = []
    for lefts, rights_alike in itertools.product(_by_kind(left_sides), _by_kind(right_sides)):
        splits = _always_split(steps, lefts[0], rights_alike[0])
        if splits is None:
            continue
        found = [
            (left.character, right.character)
            for left, right in itertools.product(lefts, rights_alike)
            if endings.isdisjoint(left.images)
            and forbidden.isdisjoint(itertools.product(left.images, right.images))
            and (splits or vocabulary.never_together(left, right))
        ]
        pairs += found
        if splits:
            samples += found[:: len(found) // _NUM_SAMPLES_OF_A_KIND + 1]
            samples += [
                (alike.get(left, left)[-1], alike.get(right, right)[-1])
                for left, right in found[:1]
            ]
        else:  # decided one by one: a pair for each left and each right character
            samples += {left: (left, right) for left, right in found}.values()
            samples += {right: (left, right) for left, right in found}.values()
    in_runs: set[Pair] = set()
    behind_runs = _PRINTED
    if not (some_strip or some_prepend) and all(
        step.get("type") in _KEEPING_SPACES for step in normalizers
    ):
        composes = any(step.get("type") in ("NFC", "NFKC") for step in normalizers)
        in_runs, behind_runs = _in_runs(steps, _PRINTED + (_LATIN if composes else ""))
        in_runs -= forbidden | set(pairs)
        # Before an added token a run ends, as at the end of a text.
        starts = {content[0] for content in contents}
        behind_runs = "".join(c for c in behind_runs if starts.isdisjoint((c, c.lower())))
    return CertainPairs(
        pairs=frozenset(pairs),
        alike={first: alike[first] for pair in pairs for first in pair if first in alike},
        in_runs=frozenset(in_runs),
        behind_runs=frozenset(behind_runs if in_runs else ""),
        samples=tuple(samples),
    )


def _in_runs(steps: Sequence[Step], behind: str) -> tuple[set[Pair], str]:
    """Return between which spaces some step always splits, if one of some characters follows.

    `behind` is what may follow for the steps when a printed ASCII character does in the text.
    """
    for place, step in enumerate(steps):
        earlier = steps[:place]
        if any(each.written(space) != space for each in earlier for space in _SPACES):
            break
        found = {
            (left, right)
            for left, right in itertools.product(_SPACES, repeat=2)
            if step.in_run(left, right, behind)
            and all(each(left, right) is False for each in earlier)
        }
        if found:
            # A step before this one must not have parted the run from what follows.
            parted = {
                character
                for character in behind
                if any(each.may_split(space, character) for each in earlier for space in _SPACES)
            }
            if not parted.isdisjoint(_LATIN):
                parted |= {*string.ascii_letters, *_COMPOSED}
            return found, "".join(c for c in _PRINTED if c not in parted)
    return set(), ""


@dataclass(frozen=True, slots=True)
class _Side:
    """A character on one side of a cut.

    images      what it is in the text and after each normalizer
    normalized  what it can be for the pre-tokenizer
    written     what it can be for the model
    kind        equal for characters that the steps treat alike
    """

    character: str
    images: tuple[str, ...]
    normalized: tuple[str, ...]
    written: tuple[str, ...]
    kind: Hashable


def _sides(
    characters: str,
    normalizers: Sequence[Mapping[str, Any]],
    steps: Sequence[Step],
    *,
    is_right: bool,
) -> list[_Side]:
    sides = (_side(c, normalizers, steps, is_right=is_right) for c in characters)
    return [side for side in sides if side is not None]


def _side(
    character: str,
    normalizers: Sequence[Mapping[str, Any]],
    steps: Sequence[Step],
    *,
    is_right: bool,
) -> _Side | None:
    images: list[tuple[str, ...]] = [(character,)]
    for step in normalizers:
        images.append(_normalized(step, images[-1], is_right=is_right))
    if not images[-1]:
        return None
    kinds: list[Hashable] = []
    written: list[str] = []
    for image in images[-1]:
        for each in steps:
            kinds.append(each.kind(image))
            image = each.written(image)
        written.append(image)
    return _Side(
        character=character,
        images=tuple(dict.fromkeys(itertools.chain(*images))),
        normalized=images[-1],
        written=tuple(written),
        kind=tuple(kinds),
    )


def _wide_sides(
    contents: Set[str], normalizers: Sequence[Mapping[str, Any]], steps: Sequence[Step]
) -> tuple[dict[str, str], list[_Side], list[_Side]]:
    """Return characters outside ASCII that are alike, by the first of them, and its sides."""
    if any(step.written(" ") != " " for step in steps[:-1]):
        return {}, [], []  # later steps see bytes, or marks
    in_tokens = set().union(*contents)
    groups: dict[Hashable, list[str]] = {}
    sides: dict[Hashable, tuple[_Side | None, _Side | None]] = {}
    for character in _WIDE:
        if character in in_tokens:
            continue
        try:
            left = _side(character, normalizers, steps, is_right=False)
            right = _side(character, normalizers, steps, is_right=True) if normalizers else left
        except UndecidableError:
            continue  # a script property, say
        kinds = (left and left.kind, right and right.kind)
        groups.setdefault(kinds, []).append(character)
        sides.setdefault(kinds, (left, right))
    alike = {characters[0]: "".join(characters) for characters in groups.values()}
    lefts = [left for left, _ in sides.values() if left is not None]
    rights = [right for _, right in sides.values() if right is not None]
    return alike, lefts, rights


def _by_kind(sides: Iterable[_Side]) -> list[list[_Side]]:
    groups: dict[Hashable, list[_Side]] = {}
    for side in sides:
        groups.setdefault(side.kind, []).append(side)
    return list(groups.values())


def _always_split(steps: Sequence[Step], left: _Side, right: _Side) -> bool | None:
    """Say what the steps do: True: one always splits, False: none does anything, None: else."""
    splits = True
    for before, behind in itertools.product(left.normalized, right.normalized):
        for step in steps:
            verdict = step(before, behind)
            if verdict is None:
                return None
            if verdict:
                break
            before, behind = step.written(before), step.written(behind)
        else:
            splits = False
    return splits


def _normalized(
    step: Mapping[str, Any], characters: tuple[str, ...], *, is_right: bool
) -> tuple[str, ...]:
    """Return what a normalizer can make of a character; nothing where that isn't sure."""
    kind = step.get("type")
    if kind in _UNICODE_FORMS:
        if any(unicodedata.normalize(kind, c) != c for c in characters):
            return ()
        if not is_right or kind in ("NFD", "NFKD"):
            return characters  # a mark behind the left one would stand between the two
        if any(map(_may_compose, characters)):
            return ()
        return (*characters, *(_COMPOSED[c] for c in characters if c in _COMPOSED))
    if kind in _NORMALIZERS_BY_CHARACTER:
        if kind in ("Nmt", "BertNormalizer") and not all(c.isascii() for c in characters):
            return ()
        if kind == "Lowercase" or (kind == "BertNormalizer" and step.get("lowercase", True)):
            characters = tuple(c.lower() for c in characters)
        if any(len(c) != 1 for c in characters):
            return ()
        if kind == "Nmt" or (kind == "BertNormalizer" and step.get("clean_text", True)):
            characters = tuple(" " if c in "\n\r\t" else c for c in characters)
        return characters
    if kind == "Replace":
        pattern = (step.get("pattern") or {}).get("String")
        content = step.get("content")
        if not pattern or not isinstance(content, str):
            raise UndecidableError("a normalizer replaces by a regular expression")
        side = 0 if is_right else -1
        if pattern in characters:
            return tuple(content[side] if c == pattern else c for c in characters if content)
        return () if pattern[side] in characters else characters
    raise UndecidableError(f"normalizer {kind}")


def _may_compose(character: str) -> bool:
    """Say whether a character may become another with a mark behind it, which isn't known here."""
    if character.isascii():
        return character.isalpha()
    composed = (SPACE_MARK, *_COMPOSED.values())
    return character not in composed and unicodedata.category(character)[0] != "P"


def _contents(tokens: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return what added tokens may be in a text, before and after it is normalized."""
    contents = set()
    for token in tokens:
        content: str = token["content"]
        contents.add(content)
        if token.get("normalized"):
            # Looked for in the normalized text, normalized itself.
            contents |= _perhaps_normalized(content)
    return contents


def _perhaps_normalized(text: str) -> set[str]:
    forms = {text}
    if not text.isascii():
        normalize = unicodedata.normalize
        forms |= {normalize("NFC", text), normalize("NFKC", text)}
        forms |= {normalize("NFD", text), normalize("NFKD", text)}
        forms |= {"".join(c for c in form if not unicodedata.combining(c)) for form in forms}
    return (forms | {form.lower() for form in forms}) - {""}


def _forbidden(contents: Set[str], normalizers: Iterable[Mapping[str, Any]]) -> set[Pair]:
    """Return the neighbours in added tokens and in what normalizers replace."""
    replaced = {str((step.get("pattern") or {}).get("String") or "") for step in normalizers}
    return set(itertools.chain.from_iterable(map(itertools.pairwise, contents | replaced)))


class _JoinedInVocabulary:
    """For BPE without a splitting pre-tokenizer: which characters some entry holds together."""

    def __init__(self, model: Mapping[str, Any], characters: Iterable[str]) -> None:
        vocabulary = model.get("vocab")
        usable = (
            model.get("type") == "BPE"
            and isinstance(vocabulary, Mapping)
            and not model.get("continuing_subword_prefix")
            and not model.get("end_of_word_suffix")
            # Otherwise a part that is an entry of the vocabulary would become that entry at once.
            and not model.get("ignore_merges")
        )
        self._vocabulary: Mapping[str, int] = vocabulary if usable and vocabulary else {}
        self._characters = "".join(dict.fromkeys(characters))

    def never_together(self, left: _Side, right: _Side) -> bool:
        """Say whether all they can be is known to the model (so that none becomes part of a fused
        unknown token) and no entry of the vocabulary, hence no merge, holds one before the other.
        Characters that stand for others aren't known."""
        number, together = self._number, self._together
        return all(
            c in self._vocabulary and c in number for c in left.written + right.written
        ) and (
            not any(
                together[number[before], number[behind]]
                for before, behind in itertools.product(left.written, right.written)
            )
        )

    @cached_property
    def _number(self) -> Mapping[str, int]:
        return {character: place for place, character in enumerate(self._characters, 1)}

    @cached_property
    def _together(self) -> NDArray[np.bool_]:
        numbers = np.zeros(sys.maxunicode + 1, dtype=np.int16)
        for character, number in self._number.items():
            numbers[ord(character)] = number
        text = "\0".join(self._vocabulary).encode("utf-32-le", "surrogatepass")
        seen = numbers[np.frombuffer(text, dtype="<u4")]
        together = np.zeros((len(self._number) + 1,) * 2, dtype=np.bool_)
        together[seen[:-1], seen[1:]] = True
        return together
