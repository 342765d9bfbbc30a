"""Turns text into token ids exactly as `tokenizers` does, but encodes the same text only once.

A text is cut at certain boundaries (see `boundaries`), each part is looked up in a cache, and only
parts never seen before are encoded. So the second turn of a conversation encodes its new messages
alone, and a raw prompt that grew since the last request encodes from the last seam before the
first difference. That it gives the plain encoding is proved on texts with awkward neighbours when
the tokenizer is loaded, and on a share of the run's own texts; where a proof fails, everything
from there on is encoded plainly, and the notes say so.

Truncation and padding of `tokenizer.json` are switched off: servers do that before they encode.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from prefixaudit.core.request import TokenArray
from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts.boundaries import NOWHERE, Boundaries, find_boundaries
from prefixaudit.prompts.cutting import Cutter
from prefixaudit.prompts.segment_cache import SegmentCache
from prefixaudit.prompts.token_lengths import TokenLengths, has_lengths

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from prefixaudit.prompts.words import WordEncoder

# So much new text is encoded before it pays to load numba, which takes a tenth of a second.
_FEW_CHARACTERS = 1 << 16
# One in so many bytes of the cache's memory is for words.
_SHARE_OF_WORDS = 8

# Texts whose neighbours are awkward for some pre-tokenizer: space runs, line ends, contractions,
# digits, marks, wide and joined characters, half-written added tokens.
_PROBES_BEFORE = (
    "",
    " ",
    "x",
    "It's  ",
    "a\n\n",
    "9",
    "e\u0301",
    "\u4f60\u597d",
    "\U0001f469\u200d",
)
_PROBES_AFTER = (
    "",
    "x",
    " x",
    "\n",
    "  \n\n y",
    "'s",
    "7",
    "\u0301z",
    "\u4e16",
    "<|",
    "\t-",
    "\r\n",
)


@dataclass(slots=True)
class EncoderStatistics:
    """What encoding has cost so far, in tokens and seconds."""

    num_encoded_tokens: int = 0
    num_reused_tokens: int = 0
    num_proofs: int = 0
    num_proved_tokens: int = 0
    num_failed_proofs: int = 0
    encode_s: float = 0.0
    proof_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)


class TextEncoder:
    """Encodes texts with one `tokenizer.json`. Raises ConfigurationError where it can't be used.

    `cache_bytes` bounds the memory of the cache (0: encode everything plainly). `check_share` is
    the share of the run's text that is encoded plainly too, as proof; the first text always is
    (0 switches the proofs on the run's own text off).
    """

    def __init__(
        self,
        path: Path,
        *,
        cache_bytes: int = 256 << 20,
        check_share: float = 0.003,
    ) -> None:
        self.statistics = EncoderStatistics()
        self._tokenizer, configuration = _load(path)
        self._check_share = check_share
        self._seen_characters = 0
        self._checked_characters = 0
        self._words: WordEncoder | None = None
        self._token_lengths = (
            TokenLengths(configuration, self._tokenizer.id_to_token)
            if has_lengths(configuration)
            else None
        )
        self._new_characters = 0
        self._cache_bytes = cache_bytes
        self._cache = SegmentCache(cache_bytes - cache_bytes // _SHARE_OF_WORDS)
        self._cutter = Cutter(find_boundaries(configuration) if cache_bytes else NOWHERE)
        for note in self.boundaries.notes:
            self.statistics.note(note)
        self._prefix, self._suffix, self._wraps = b"", b"", True
        if self.reuses:
            self._prefix, self._suffix, self._wraps = self._special_tokens_around()
        if not self._wraps:
            self.statistics.note(
                "the post-processor does more than add tokens at both ends: "
                "prompts that ask for special tokens are encoded plainly"
            )
        self._prove_boundaries()

    @property
    def reuses(self) -> bool:
        """Say whether parts of texts are reused at all."""
        return self._cutter.cuts

    @property
    def boundaries(self) -> Boundaries:
        """Return where texts are cut."""
        return self._cutter.boundaries

    def plain(self, text: str, *, add_special_tokens: bool = False) -> TokenArray:
        """Return the ids of `text` (uint32) by one call of `tokenizers`, without any reuse."""
        ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return np.asarray(ids, dtype=np.uint32)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenArray:
        """Return the ids of `text` (read-only uint32). Raises UnicodeError for lone surrogates."""
        if not text.isascii():
            text.encode()  # a lone surrogate has no tokens
        started = time.perf_counter()
        if not self.reuses or (add_special_tokens and not self._wraps):
            ids = self.plain(text, add_special_tokens=add_special_tokens)
            ids.flags.writeable = False
            self.statistics.num_encoded_tokens += len(ids)
            self.statistics.encode_s += time.perf_counter() - started
            return ids
        parts = self._encoded_parts(text)
        if add_special_tokens:
            parts = [self._prefix, *parts, self._suffix]
        ids = np.frombuffer(b"".join(parts), dtype=np.uint32)
        self.statistics.encode_s += time.perf_counter() - started
        self._seen_characters += len(text)
        if self._check_share and (
            self._checked_characters <= self._check_share * self._seen_characters
        ):
            return self._proved(text, ids, add_special_tokens=add_special_tokens)
        return ids

    def character_of(self, text: str, token_index: int, *, add_special_tokens: bool = False) -> int:
        """Return where in `text` a token of its encoding starts, in characters."""
        encoding = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        start, end = encoding.offsets[token_index]
        has_no_text = encoding.special_tokens_mask[token_index] and start == end
        if has_no_text and token_index:
            return len(text)
        return int(start)

    def decode(self, ids: TokenArray) -> str:
        """Return the text of some ids, special tokens included."""
        text: str = self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        return text

    def token_id(self, token: str) -> int | None:
        """Return the id of one token by its text, None where the vocabulary has none."""
        number: int | None = self._tokenizer.token_to_id(token)
        return number

    def forget(self) -> None:
        """Empty the cache, so that the next texts are encoded anew."""
        self._cache.clear()
        self._words = None

    # --- parts

    def _encoded_parts(self, text: str) -> list[bytes]:
        found: list[bytes] = []
        missing: dict[str, list[int]] = {}
        get = self._cache.get
        for part in self._cutter.parts(text):
            if isinstance(part, bytes):
                found.append(part)
                continue
            ids = get(part)
            if ids is None:
                missing.setdefault(part, []).append(len(found))
                ids = b""
            found.append(ids)
        if missing:
            self._fill(found, missing)
        reused = sum(map(len, found)) // 4
        if missing:
            encoded = sum(len(found[places[0]]) for places in missing.values()) // 4
            self.statistics.num_encoded_tokens += encoded
            reused -= encoded
        self.statistics.num_reused_tokens += reused
        return found

    def _fill(self, found: list[bytes], missing: Mapping[str, list[int]]) -> None:
        texts = list(missing)
        for text, ids in zip(texts, self._encoded_anew(texts), strict=True):
            self._cache.put(text, ids)
            for place in missing[text]:
                found[place] = ids

    def _encoded_anew(self, texts: list[str]) -> list[bytes]:
        self._new_characters += sum(map(len, texts))
        if self._new_characters > _FEW_CHARACTERS and self.boundaries.pairs:
            if self._words is None:
                # Loads numba, and compiles its kernels where they never were.
                from prefixaudit.prompts.words import WordEncoder

                self._words = WordEncoder(
                    self.boundaries,
                    self._ids_of,
                    self._token_lengths,
                    max_bytes=self._cache_bytes // _SHARE_OF_WORDS,
                )
            had_joined = self._words.has_joined
            encoded = self._words.encode(texts)
            if self._words.has_joined and not had_joined:
                self._checked_characters = 0  # the first text that was put together is proved
            return encoded
        return [np.array(self._ids_of(text), dtype=np.uint32).tobytes() for text in texts]

    def _ids_of(self, text: str) -> list[int]:
        # Without offsets, which nobody asks for, and one text at a time: a batch would spread over
        # all cores, which costs more than it brings.
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        ids: list[int] = encoding.ids
        return ids

    # --- special tokens at both ends

    def _special_tokens_around(self) -> tuple[bytes, bytes, bool]:
        """Return what the post-processor adds before and behind every text, if that is all."""
        prefix: list[int] | None = None
        suffix: list[int] = []
        for probe in ("a", "probe 1", ""):
            encoding = self._tokenizer.encode(probe, add_special_tokens=True)
            inside = self._tokenizer.encode(probe, add_special_tokens=False).ids
            if prefix is None:
                mask = encoding.special_tokens_mask
                num_before = next((i for i, added in enumerate(mask) if not added), len(mask))
                prefix = encoding.ids[:num_before]
                suffix = encoding.ids[num_before + len(inside) :]
            if encoding.ids != [*prefix, *inside, *suffix]:
                return b"", b"", False
        assert prefix is not None
        return (
            np.array(prefix, dtype=np.uint32).tobytes(),
            np.array(suffix, dtype=np.uint32).tobytes(),
            True,
        )

    # --- proofs

    def _prove_boundaries(self) -> None:
        """Encode awkward texts both ways; what fails isn't used."""
        if not self.reuses:
            return
        started = time.perf_counter()
        if not all(map(self._pair_holds, self._probe_pairs())):
            self._give_up(
                "a boundary of words failed its proof: texts are cut at added tokens only",
                keep_tokens=True,
            )
        tokens = sorted(self.boundaries.cut_at, key=len)[:2]
        tokens += sorted(self.boundaries.cut_at)[-2:]
        probes = [
            f"{before}{token}{after}{token}{before}"
            for token in tokens
            for before in _PROBES_BEFORE
            for after in _PROBES_AFTER
        ]
        if any(not self._same(probe) for probe in probes):
            self._give_up("a cut at an added token failed its proof: texts are encoded whole")
        self._cache.clear()
        self.statistics.num_encoded_tokens = self.statistics.num_reused_tokens = 0
        self._new_characters = 0
        self.statistics.proof_s += time.perf_counter() - started

    def _probe_pairs(self) -> Iterator[tuple[str, str]]:
        for number, (left, right) in enumerate(self.boundaries.samples):
            for turn in range(2):
                place = 2 * number + turn
                before = _PROBES_BEFORE[place % len(_PROBES_BEFORE)]
                after = _PROBES_AFTER[place % len(_PROBES_AFTER)]
                # Something stands before a cut, so that no part is the text's start by accident.
                if self.boundaries.drops_space:
                    after = after or "x"
                yield "w " + before + left, right + after
        behind_runs = sorted(self.boundaries.behind_runs)
        for number, (left, right) in enumerate(sorted(self.boundaries.in_runs)):
            for place, character in enumerate(behind_runs[number % 8 :: 8], number):
                before = _PROBES_BEFORE[place % len(_PROBES_BEFORE)]
                after = _PROBES_AFTER[place % len(_PROBES_AFTER)]
                yield "w " + before + left, right + character + after

    def _pair_holds(self, sides: tuple[str, str]) -> bool:
        encode = self._tokenizer.encode
        whole = encode("".join(sides), add_special_tokens=False).ids
        if self.boundaries.drops_space:
            sides = (sides[0], sides[1][1:])
        left, right = (encode(side, add_special_tokens=False).ids for side in sides)
        self.statistics.num_proofs += 1
        same: bool = whole == left + right
        return same

    def _same(self, text: str) -> bool:
        ids = np.frombuffer(b"".join(self._encoded_parts(text)), dtype=np.uint32)
        self.statistics.num_proofs += 1
        return bool(np.array_equal(ids, self.plain(text)))

    def _proved(self, text: str, ids: TokenArray, *, add_special_tokens: bool) -> TokenArray:
        started = time.perf_counter()
        plain = self.plain(text, add_special_tokens=add_special_tokens)
        self._checked_characters += len(text)
        self.statistics.num_proofs += 1
        self.statistics.num_proved_tokens += len(plain)
        self.statistics.proof_s += time.perf_counter() - started
        if np.array_equal(plain, ids):
            return ids
        self.statistics.num_failed_proofs += 1
        self._give_up(
            "a proof failed in the middle of the run: from there on texts are encoded plainly, "
            "and ids before that may differ from the engine's"
        )
        plain.flags.writeable = False
        return plain

    def _give_up(self, note: str, *, keep_tokens: bool = False) -> None:
        self.statistics.note(note)
        self.forget()
        self._cutter = Cutter(
            replace(self.boundaries, pairs=frozenset(), in_runs=frozenset(), samples=())
            if keep_tokens
            else NOWHERE
        )


def _load(path: Path) -> tuple[Tokenizer, Mapping[str, Any]]:
    from tokenizers import Tokenizer

    try:
        raw = path.read_bytes()
        configuration = orjson.loads(raw)
        if not isinstance(configuration, Mapping):
            raise ValueError("it isn't an object")
        tokenizer = Tokenizer.from_buffer(raw)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file; a tokenizer.json was expected") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from None
    except Exception as error:  # tokenizers raises plain Exception for what it can't parse
        raise ConfigurationError(
            f"{path}: not a tokenizer that `tokenizers` can load: {error}"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, configuration
