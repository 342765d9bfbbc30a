"""Says where a text can be cut so that its parts are encoded as if they stood together.

Two kinds of places, both derived from `tokenizer.json` alone:

* An added token (`<|end|>`) is taken out of the text before the normalizer and the pre-tokenizer
  run, so what stands before and behind it is encoded independently.
* Between two characters that the pre-tokenizer never puts into one pre-token (a letter and a
  line feed, say). That holds if, at every step of the pre-tokenizer, no match can hold both, no
  lookahead of a match that ends between them sees the second one, and at least one step always
  splits there. Models without a pre-tokenizer (BPE over the whole text) may be cut where no entry
  of the vocabulary holds both characters side by side.

Anything that isn't known for sure gives no boundary, and a note that says so. Mirrors the
pre-tokenizers and normalizers of tokenizers 0.22 and 0.23.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixaudit.prompts.patterns import PatternPositions, UndecidableError, literal

# Characters on the two sides of a possible cut: enough that texts in any language of words and
# spaces, and code, can be cut often.
_LEFT = string.ascii_letters + string.digits + string.punctuation
_RIGHT = "\n "

# The pattern that `ByteLevel(use_regex=True)` has built in (GPT-2).
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"\w+|[^\w\s]+"

# How `ByteLevel` writes the two bytes; printable ASCII stays what it is.
_BYTES_AS_CHARACTERS = {" ": "\u0120", "\n": "\u010a"}
_SPACE_MARK = "\u2581"

_NORMALIZERS_BY_CHARACTER = frozenset({"Lowercase", "StripAccents", "Nmt", "BertNormalizer"})
_UNICODE_FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """Where a tokenizer's texts may be cut.

    added_tokens      all added tokens that are found in the text as written, with their ids
    cut_at            those of them around which a text may be cut
    first_is_special  a text's first word is encoded differently from the same word elsewhere, so
                      a part that isn't first has to keep the added token before it
    pairs             (left, right) characters between which a text may be cut
    drops_space       the normalizer puts a space before every part, so a part that was cut off
                      before a space is encoded without it (Llama 2 and its like)
    notes             why something isn't used, for a person
    """

    added_tokens: Mapping[str, int]
    cut_at: frozenset[str]
    first_is_special: bool
    pairs: frozenset[tuple[str, str]]
    notes: tuple[str, ...]
    drops_space: bool = False


NOWHERE = Boundaries(
    added_tokens={}, cut_at=frozenset(), first_is_special=False, pairs=frozenset(), notes=()
)


def find_boundaries(tokenizer: Mapping[str, Any]) -> Boundaries:
    """Derive from a decoded `tokenizer.json` where its texts may be cut."""
    model = tokenizer.get("model") or {}
    if model.get("dropout"):
        note = "BPE dropout makes the encoding random: nothing is reused"
        return Boundaries(
            added_tokens={},
            cut_at=frozenset(),
            first_is_special=False,
            pairs=frozenset(),
            notes=(note,),
        )
    notes: list[str] = []
    tokens = [token for token in tokenizer.get("added_tokens") or () if token.get("content")]
    as_written = {t["content"]: int(t["id"]) for t in tokens if not t.get("normalized")}
    cut_at: frozenset[str] = frozenset()
    if any(token.get("single_word") for token in tokens):
        notes.append("an added token is matched as a single word: texts are encoded whole")
        return Boundaries(
            added_tokens=as_written,
            cut_at=cut_at,
            first_is_special=False,
            pairs=frozenset(),
            notes=tuple(notes),
        )
    some_strip_right = any(token.get("rstrip") for token in tokens)
    cut_at = frozenset(
        token["content"]
        for token in tokens
        if not token.get("normalized")
        and not token.get("lstrip")
        and not token.get("rstrip")
        # A token before it that takes the spaces behind itself would eat into it.
        and not (some_strip_right and token["content"][0].isspace())
    )
    pairs: frozenset[tuple[str, str]] = frozenset()
    try:
        pairs = frozenset(_certain_pairs(tokenizer, tokens))
    except UndecidableError as reason:
        notes.append(f"texts are cut at added tokens only: {reason}")
    else:
        if not pairs:
            notes.append("texts are cut at added tokens only: no boundary of words is certain")
    return Boundaries(
        added_tokens=as_written,
        cut_at=cut_at,
        first_is_special=_first_is_special(tokenizer),
        pairs=pairs,
        notes=tuple(notes),
        drops_space=_puts_space_first(tokenizer),
    )


def _flat(step: Mapping[str, Any] | None, key: str) -> Iterator[Mapping[str, Any]]:
    if step is None:
        return
    if step.get("type") == "Sequence":
        for inner in step.get(key) or ():
            yield from _flat(inner, key)
    else:
        yield step


def _first_is_special(tokenizer: Mapping[str, Any]) -> bool:
    """Say whether a pre-tokenizer asks for the text's start (Metaspace with `first`)."""
    return any(
        step.get("type") == "Metaspace" and _prepend_scheme(step) == "first"
        for step in _flat(tokenizer.get("pre_tokenizer"), "pretokenizers")
    )


def _puts_space_first(tokenizer: Mapping[str, Any]) -> bool:
    """Say whether the normalizer does nothing but write spaces as `▁` and put one in front."""
    steps = list(_flat(tokenizer.get("normalizer"), "normalizers"))
    kinds = sorted(str(step.get("type")) for step in steps)
    return kinds == ["Prepend", "Replace"] and all(
        step.get("prepend") == _SPACE_MARK
        if step["type"] == "Prepend"
        else (step.get("pattern"), step.get("content")) == ({"String": " "}, _SPACE_MARK)
        for step in steps
    )


def _prepend_scheme(step: Mapping[str, Any]) -> str:
    scheme = step.get("prepend_scheme")
    if scheme is None:  # files written before tokenizers 0.15
        return "always" if step.get("add_prefix_space", True) else "never"
    return str(scheme)


def _certain_pairs(
    tokenizer: Mapping[str, Any], tokens: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    steps = list(_flat(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    normalizers = list(_flat(tokenizer.get("normalizer"), "normalizers"))
    space_first = _puts_space_first(tokenizer)
    if space_first:
        normalizers = [step for step in normalizers if step["type"] == "Replace"]
    # Tokens marked `normalized` are looked for in the normalized text, normalized themselves.
    contents = {t["content"] for t in tokens} | {t["content"].lower() for t in tokens}
    rights = "".join(
        right
        for right in _RIGHT
        # What a step puts before a text that doesn't start with a space must not be put there.
        if right == " " or not (space_first or any(_prepends(step) for step in steps))
    )
    readers = [_step_reader(step) for step in steps]
    words = _JoinedInVocabulary(tokenizer) if tokenizer.get("model") else None
    strip_right = [t["content"] for t in tokens if t.get("rstrip")]
    for right in rights:
        for left in _LEFT:
            if any(content.endswith(left) for content in strip_right):
                continue
            seen = _normalized(normalizers, left, right)
            if seen is None:
                continue
            if any(
                both in content for both in (left + right, "".join(seen)) for content in contents
            ):
                continue
            split = False
            for reader in readers:
                verdict = reader(*seen)
                if verdict is None:
                    break
                if verdict:
                    split = True
                    break
            else:
                split = words is not None and words.never_together(*seen)
            if split:
                yield left, right


def _normalized(
    normalizers: Sequence[Mapping[str, Any]], left: str, right: str
) -> tuple[str, str] | None:
    """Return the two characters as the pre-tokenizer sees them; None where that isn't sure."""
    for step in normalizers:
        kind = step.get("type")
        if kind in _UNICODE_FORMS:
            continue  # ASCII characters neither change nor compose with one another
        if kind in _NORMALIZERS_BY_CHARACTER:
            if kind == "Lowercase" or (kind == "BertNormalizer" and step.get("lowercase")):
                left = left.lower()
            if right == "\n" and kind in ("Nmt", "BertNormalizer"):
                right = " "
            continue
        if kind == "Replace":
            pattern = (step.get("pattern") or {}).get("String")
            content = step.get("content")
            if not pattern or not isinstance(content, str):
                raise UndecidableError("a normalizer replaces by a regular expression")
            if pattern == right and content:
                right = content[0]
            elif pattern == left and content:
                left = content[-1]
            elif left + right in pattern or pattern[0] == right or pattern[-1] == left:
                return None
            continue
        raise UndecidableError(f"normalizer {kind}")
    return left, right


def _prepends(step: Mapping[str, Any]) -> bool:
    kind = step.get("type")
    if kind == "Metaspace":
        return _prepend_scheme(step) != "never"
    return kind == "ByteLevel" and bool(step.get("add_prefix_space", True))


class _Verdict:
    """Calls as (left, right): True: always split there; False: neither split nor disturbed;
    None: not certain."""

    def __call__(self, left: str, right: str) -> bool | None:
        raise NotImplementedError


class _PatternStep(_Verdict):
    def __init__(self, pattern: str, behavior: str, *, invert: bool) -> None:
        self._positions = PatternPositions(pattern)
        if invert and behavior not in ("Isolated", "Removed"):
            raise UndecidableError(f"an inverted split that is {behavior}")
        self._behavior = behavior

    def __call__(self, left: str, right: str) -> bool | None:
        positions = self._positions
        if positions.joins(left, right) or positions.looks_past(left):
            return None
        if self._behavior in ("Isolated", "Removed"):
            return positions.always_matches(left) or positions.always_matches(right)
        if self._behavior == "MergedWithPrevious":
            return positions.always_matches(left)
        if self._behavior == "MergedWithNext":
            return positions.always_matches(right)
        return False


class _CharacterStep(_Verdict):
    """Splits at single characters of a kind, wherever they stand."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(self, left: str, right: str) -> bool | None:
        return self._splits(left) or self._splits(right)

    def _splits(self, character: str) -> bool:
        if self._kind == "WhitespaceSplit":
            return character.isspace()
        if self._kind == "BertPreTokenizer":
            return character.isspace() or character in string.punctuation
        if self._kind == "Punctuation":
            return character in string.punctuation
        raise AssertionError(self._kind)


class _DigitsStep(_Verdict):
    def __call__(self, left: str, right: str) -> bool | None:
        return left.isdigit() != right.isdigit()


class _Metaspace(_Verdict):
    def __init__(self, *, split: bool) -> None:
        self._split = split

    def __call__(self, left: str, right: str) -> bool | None:
        # Before a space nothing is put in front; without splitting, the vocabulary decides.
        return self._split and right == " "


class _Untouched(_Verdict):
    def __call__(self, left: str, right: str) -> bool | None:
        return False


def _step_reader(step: Mapping[str, Any]) -> _Verdict:
    kind = step.get("type")
    if kind == "Split":
        pattern = step.get("pattern") or {}
        behavior = str(step.get("behavior"))
        if isinstance(pattern.get("Regex"), str):
            return _PatternStep(pattern["Regex"], behavior, invert=bool(step.get("invert")))
        if isinstance(pattern.get("String"), str):
            text = literal(pattern["String"])
            return _PatternStep(text, behavior, invert=bool(step.get("invert")))
        raise UndecidableError("a split without a pattern")
    if kind == "ByteLevel":
        if step.get("use_regex", True):
            return _PatternStep(_BYTE_LEVEL, "Isolated", invert=False)
        return _Untouched()
    if kind == "Whitespace":
        return _PatternStep(_WORDS, "Removed", invert=True)
    if kind in ("WhitespaceSplit", "BertPreTokenizer"):
        return _CharacterStep(str(kind))
    if kind == "Punctuation":
        if step.get("behavior", "Isolated") not in ("Isolated", "Removed"):
            raise UndecidableError("punctuation that is merged with its neighbours")
        return _CharacterStep(str(kind))
    if kind == "Digits":
        return _DigitsStep()
    if kind == "Metaspace":
        return _Metaspace(split=bool(step.get("split", True)))
    if kind == "CharDelimiterSplit":
        return _PatternStep(literal(str(step.get("delimiter"))), "Removed", invert=False)
    raise UndecidableError(f"pre-tokenizer {kind}")


class _JoinedInVocabulary:
    """For BPE without a splitting pre-tokenizer: which characters some entry holds together."""

    def __init__(self, tokenizer: Mapping[str, Any]) -> None:
        model = tokenizer["model"]
        steps = _flat(tokenizer.get("pre_tokenizer"), "pretokenizers")
        kinds = {step.get("type") for step in steps}
        self._mapped: Mapping[str, str] = {}
        if "ByteLevel" in kinds:
            self._mapped = _BYTES_AS_CHARACTERS
        elif "Metaspace" in kinds:
            self._mapped = {" ": _SPACE_MARK}
        vocabulary = model.get("vocab")
        self._usable = (
            model.get("type") == "BPE"
            and not {"ByteLevel", "Metaspace"} <= kinds
            and isinstance(vocabulary, Mapping)
            and not model.get("continuing_subword_prefix")
            and not model.get("end_of_word_suffix")
        )
        self._vocabulary: Mapping[str, int] = vocabulary if isinstance(vocabulary, Mapping) else {}
        self._before: dict[str, frozenset[str]] = {}

    def never_together(self, left: str, right: str) -> bool:
        """Say whether both are known to the model (so neither becomes part of a fused unknown
        token) and no entry of the vocabulary, hence no merge, holds `left` before `right`."""
        right = self._mapped.get(right, right)
        if not self._usable or left not in self._vocabulary or right not in self._vocabulary:
            return False
        if right not in self._before:
            text = "\0".join(self._vocabulary)
            found = re.findall(f"([^\0]){re.escape(right)}", text)
            overlapping = re.findall(f"(?<=[^\0])(.)(?={re.escape(right)})", text, re.DOTALL)
            self._before[right] = frozenset(found) | frozenset(overlapping)
        return left not in self._before[right]
