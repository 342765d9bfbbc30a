"""Says where a text can be cut so that its parts are encoded as if they stood together.

Two kinds of places, both derived from `tokenizer.json` alone:

* An added token (`<|end|>`) is taken out of the text before the normalizer and the pre-tokenizer
  run, so what stands before and behind it is encoded independently.
* Between two characters that the pre-tokenizer never puts into one pre-token (a letter and a
  line feed, say); `certain_pairs` says which.

Anything that isn't known for sure gives no boundary, and a note that says so. Mirrors tokenizers
0.22 and 0.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixaudit.prompts.certain_pairs import CertainPairs, Pair, certain_pairs
from prefixaudit.prompts.pattern_reading import UndecidableError
from prefixaudit.prompts.pre_tokenizers import SPACE_MARK, flat, prepend_scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """Where a tokenizer's texts may be cut.

    added_tokens      all added tokens that are found in the text as written, with their ids
    cut_at            those of them around which a text may be cut
    first_is_special  a text's first word is encoded differently from the same word elsewhere, so
                      a part that isn't first has to keep the added token before it
    pairs             (left, right) characters between which a text may be cut
    alike             a character outside ASCII, and all those for which it stands in `pairs`
    in_runs           the same of whitespace, if one of `behind_runs` follows
    samples           some pairs of every kind: where these hold, the others do
    drops_space       the normalizer puts a space before every part, so a part that was cut off
                      before a space is encoded without it (Llama 2 and its like)
    never_behind      characters that mustn't follow a dropped space: an added token that they may
                      begin isn't a word, and the space before it is one of its own
    notes             why something isn't used, for a person
    """

    added_tokens: Mapping[str, int]
    cut_at: frozenset[str]
    first_is_special: bool
    pairs: frozenset[Pair]
    notes: tuple[str, ...]
    alike: Mapping[str, str] = field(default_factory=dict)
    in_runs: frozenset[Pair] = frozenset()
    behind_runs: frozenset[str] = frozenset()
    samples: tuple[Pair, ...] = ()
    drops_space: bool = False
    never_behind: frozenset[str] = frozenset()


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
    space_first = _puts_space_first(tokenizer)
    certain = CertainPairs()
    try:
        certain = certain_pairs(tokenizer, tokens, space_first=space_first)
    except UndecidableError as reason:
        notes.append(f"texts are cut at added tokens only: {reason}")
    else:
        if not certain.pairs:
            notes.append("texts are cut at added tokens only: no boundary of words is certain")
    return Boundaries(
        added_tokens=as_written,
        cut_at=cut_at,
        first_is_special=_first_is_special(tokenizer),
        pairs=certain.pairs,
        alike=certain.alike,
        in_runs=certain.in_runs,
        behind_runs=certain.behind_runs,
        samples=certain.samples,
        notes=tuple(notes),
        drops_space=space_first,
        never_behind=frozenset(content[0] for content in as_written.keys() - cut_at),
    )


def _first_is_special(tokenizer: Mapping[str, Any]) -> bool:
    """Say whether a pre-tokenizer asks for the text's start (Metaspace with `first`)."""
    return any(
        step.get("type") == "Metaspace" and prepend_scheme(step) == "first"
        for step in flat(tokenizer.get("pre_tokenizer"), "pretokenizers")
    )


def _puts_space_first(tokenizer: Mapping[str, Any]) -> bool:
    """Say whether the normalizer does nothing but write spaces as `▁` and put one in front."""
    steps = list(flat(tokenizer.get("normalizer"), "normalizers"))
    kinds = sorted(str(step.get("type")) for step in steps)
    return kinds == ["Prepend", "Replace"] and all(
        step.get("prepend") == SPACE_MARK
        if step["type"] == "Prepend"
        else (step.get("pattern"), step.get("content")) == ({"String": " "}, SPACE_MARK)
        for step in steps
    )
