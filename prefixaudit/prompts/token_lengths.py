"""How many bytes of text each token id stands for, so that ids can be told apart by words.

Known for two ways of writing text as tokens: `ByteLevel`, where every character of a token is a
byte, and SentencePiece's, where `▁` is a space and `<0x0A>` a byte. Everything else, and whatever
could change the text's length on the way, gives no lengths at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prefixaudit.core.request import TokenArray
from prefixaudit.prompts.pre_tokenizers import SPACE_MARK, flat, prepends

# Longer than any text: an id whose text isn't certain fits nowhere.
_UNKNOWN = (1 << 31) - 1
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class TokenLengths:
    """The bytes of text that ids stand for, in texts of which `hold_for` is true.

    `known` has them by id (int32), 0 where they weren't asked for yet.
    """

    def __init__(self, tokenizer: Mapping[str, Any], token_of: Callable[[int], str | None]) -> None:
        """`tokenizer` is a decoded `tokenizer.json` that `has_lengths`; `token_of` its tokens."""
        self.known = np.zeros(1, dtype=np.int32)
        self._token_of = token_of
        self._is_byte_level = _is_byte_level(tokenizer)
        self._composes = bool(tokenizer.get("normalizer"))
        self._prepends = any(map(prepends, flat(tokenizer.get("pre_tokenizer"), "pretokenizers")))
        self._prepends_always = not self._is_byte_level and any(
            step.get("type") == "Prepend"
            for step in flat(tokenizer.get("normalizer"), "normalizers")
        )
        self._has_bytes = bool(tokenizer["model"].get("byte_fallback"))
        self._lengths = {
            token["content"]: self._added_length(token)
            for token in tokenizer.get("added_tokens") or ()
        }
        self._lengths[tokenizer["model"].get("unk_token") or ""] = _UNKNOWN

    def know(self, token_ids: TokenArray) -> None:
        """Find out the lengths of some ids."""
        if len(token_ids) and (top := int(token_ids.max())) >= len(self.known):
            self.known = np.concatenate([self.known, np.zeros(top + 1, dtype=np.int32)])
        for token_id in set(token_ids[self.known[token_ids] == 0].tolist()):
            self.known[token_id] = self._length(self._token_of(token_id) or "")

    def hold_for(self, text: str) -> bool:
        """Say whether the text reaches the model with all its bytes."""
        if not self._is_byte_level:
            return SPACE_MARK not in text
        return not self._composes or unicodedata.is_normalized("NFC", text)

    def num_bytes_in_front(self, text: str) -> int:
        """Return how many bytes are put in front of a text before it is encoded."""
        return int(self._prepends_always or (self._prepends and not text.startswith(" ")))

    def _added_length(self, token: Mapping[str, Any]) -> int:
        content: str = token["content"]
        if self._prepends or self._prepends_always:
            return _UNKNOWN  # what comes behind it may have something in front, or not
        if not token.get("normalized"):
            return len(content.encode())
        # Looked for in the normalized text, normalized itself: with marks for spaces.
        return (
            len(unicodedata.normalize("NFC", content).encode()) if self._is_byte_level else _UNKNOWN
        )

    def _length(self, token: str) -> int:
        if token in self._lengths:
            return self._lengths[token]
        if self._is_byte_level:
            return len(token)
        if self._has_bytes and _BYTE.fullmatch(token):
            return 1
        return len(token.replace(SPACE_MARK, " ").encode())


def has_lengths(tokenizer: Mapping[str, Any]) -> bool:
    """Say whether the lengths of a decoded `tokenizer.json`'s tokens are known."""
    model = tokenizer.get("model") or {}
    return (
        model.get("type") == "BPE"
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and (_is_byte_level(tokenizer) or _writes_marks(tokenizer))
    )


def _is_byte_level(tokenizer: Mapping[str, Any]) -> bool:
    steps = list(flat(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    normalizers = {step.get("type") for step in flat(tokenizer.get("normalizer"), "normalizers")}
    return (
        bool(steps)
        and steps[-1].get("type") == "ByteLevel"
        and normalizers <= {"NFC"}
        and all(map(_leaves_the_text, steps[:-1]))
    )


def _writes_marks(tokenizer: Mapping[str, Any]) -> bool:
    writing: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for step in flat(tokenizer.get("normalizer"), "normalizers"):
        is_plain = step.get("type") == "Replace" and step.get("pattern") == {"String": " "}
        mark = step.get("content") if is_plain else step.get("prepend")
        if mark != SPACE_MARK:
            return False
        writing += [step] * is_plain
    for step in flat(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        is_metaspace = step.get("type") == "Metaspace"
        if is_metaspace and step.get("replacement") != SPACE_MARK:
            return False
        (writing if is_metaspace else others).append(step)
    return len(writing) == 1 and all(map(_leaves_the_text, others))


def _leaves_the_text(step: Mapping[str, Any]) -> bool:
    """Say whether a step splits, and neither changes nor removes anything."""
    return (
        step.get("type") in ("Split", "Digits", "Punctuation") and step.get("behavior") != "Removed"
    )
