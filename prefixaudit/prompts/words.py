"""Encodes new text word by word: each word goes through `tokenizers` once.

A word is what stands between two certain boundaries. Words recur far more often than messages or
lines do, and looking one up takes some nanoseconds where encoding it takes microseconds. A part in
which most words are new (the first ones of a run, another language, random data) is encoded as a
whole; where the lengths of tokens are known, its words are learned on the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.request import TokenArray
from prefixaudit.prompts import word_kernels
from prefixaudit.prompts.boundaries import Boundaries
from prefixaudit.prompts.token_lengths import TokenLengths

# Characters that may help to tell the ids of two words apart.
_GLUE = b"x1. ,-("
_NOTHING = 255

Encode: TypeAlias = Callable[[str], Sequence[int]]

_MAX_BATCH_BYTES = 1 << 16
_MAX_WORDS = 1 << 20
# Of a word in all tables: 16 bytes of text, three ids, two slots, and its entry.
_WORD_BYTES = 64
_TEXT_BYTES = 16
# After so much text of which no part was put together, words are looked for in one batch of four.
_FRUITLESS_BYTES = 1 << 17
_SAMPLED_BATCHES = 4


class WordEncoder:
    """Encodes texts with `encode` as words between `boundaries`, in about `max_bytes` of memory.

    `lengths` are those of the tokens, None where they aren't known; `factor` is that of the words'
    hash, random unless given. `has_joined`: a text was put together of words.
    """

    def __init__(
        self,
        boundaries: Boundaries,
        encode: Encode,
        lengths: TokenLengths | None,
        *,
        max_bytes: int,
        factor: int | None = None,
    ) -> None:
        self.has_joined = False
        self._fruitless_bytes = 0
        self._num_batches = 0
        self._encode = encode
        self._lengths = lengths
        self._dropped = int(boundaries.drops_space)
        self._classes = np.full(1 << 16, 255, dtype=np.uint8)
        self._classes[:128] = np.arange(128)
        for number, characters in zip(range(128, 255), boundaries.alike.values(), strict=False):
            self._classes[[ord(character) for character in characters]] = number
        self._class_bytes = self._classes.tobytes()  # faster to ask one by one
        self._cuts = np.zeros(1 << 16, dtype=np.uint8)
        for pairs, kind in (
            (boundaries.in_runs, word_kernels.IN_RUN),
            (boundaries.pairs, word_kernels.ALWAYS),
        ):
            for left, right in pairs:
                self._cuts[self._place(left, right)] = kind
        table = self._cuts.reshape(256, 256)
        table[255] = table[:, 255] = 0  # kinds for which no class was left
        self._cut_bytes = self._cuts.tobytes()
        self._glue = _glue(self._cuts.reshape(256, 256) == word_kernels.ALWAYS)
        self._behind_runs = _first_bytes(boundaries.behind_runs)
        self._never_behind = _first_bytes(boundaries.never_behind)
        self._factor = np.int64(secrets.randbits(62) * 2 + 1 if factor is None else factor)
        self._max_words = max(2, min(_MAX_WORDS, max_bytes // _WORD_BYTES))
        self._max_text = self._max_words * _TEXT_BYTES
        self._max_batch_bytes = min(_MAX_BATCH_BYTES, self._max_words // 2)
        self.clear()

    def clear(self) -> None:
        """Forget all words."""
        # Memory that is never written to isn't taken either.
        num_words = self._max_words
        self._counts = np.zeros(2, dtype=np.int64)
        self._slots = np.zeros(1 << (2 * num_words - 1).bit_length(), dtype=np.int32)
        self._hashes = np.empty(num_words, dtype=np.int64)
        self._offsets = np.zeros(num_words + 1, dtype=np.int32)
        self._text = np.empty(self._max_text, dtype=np.uint8)
        self._num_ids = np.empty(num_words, dtype=np.int32)
        self._first_ids = np.empty(num_words, dtype=np.int32)
        self._ids = np.empty(max(64, num_words // 8), dtype=np.uint32)
        self._num_stored_ids = 0

    def encode(self, texts: Iterable[str]) -> list[bytes]:
        """Return each text's ids as the bytes of a uint32 array; the texts are valid Unicode."""
        encoded: list[bytes] = []
        for batch in self._batches(text.encode() for text in texts):
            self._num_batches += 1
            num_bytes = sum(map(len, batch))
            is_sampled = self._num_batches % _SAMPLED_BATCHES == 0
            if num_bytes > self._max_batch_bytes or (
                self._fruitless_bytes > _FRUITLESS_BYTES and not is_sampled
            ):
                encoded += [_array(self._encode(part.decode())).tobytes() for part in batch]
            else:
                self._fruitless_bytes += num_bytes
                encoded += self._encoded(batch)
        return encoded

    def _batches(self, parts: Iterable[bytes]) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        num_bytes = 0
        for part in parts:
            if batch and num_bytes + len(part) > self._max_batch_bytes:
                yield batch
                batch, num_bytes = [], 0
            batch.append(part)
            num_bytes += len(part)
        if batch:
            yield batch

    def _encoded(self, parts: list[bytes]) -> list[bytes]:
        data = b"".join(parts)
        num_words, num_text = self._counts.tolist()
        if num_words + len(data) > self._max_words or num_text + len(data) > self._max_text:
            self.clear()
        words = np.empty(len(data), dtype=np.int32)
        word_ends = np.empty(len(parts), dtype=np.int64)
        as_a_whole = np.empty(len(parts), dtype=np.bool_)
        wanted = np.empty((len(data), 3), dtype=np.int32)
        try:
            num_wanted = word_kernels.find_words(
                np.frombuffer(data, dtype=np.uint8),
                np.array(list(accumulate(map(len, parts))), dtype=np.int64),
                self._classes,
                self._cuts,
                self._behind_runs,
                self._dropped,
                self._never_behind,
                self._lengths is not None,
                self._factor,
                self._counts,
                self._slots,
                self._hashes,
                self._offsets,
                self._text,
                self._num_ids,
                words,
                word_ends,
                as_a_whole,
                wanted,
            )
            self._learn(data, wanted[:num_wanted])
        except BaseException:
            self.clear()  # words that are wanted but have no ids
            raise
        if not as_a_whole.all():
            self.has_joined = True
            self._fruitless_bytes = 0
        id_ends = np.empty(len(parts), dtype=np.int64)
        ids = word_kernels.put_together(
            words, word_ends, as_a_whole, self._first_ids, self._num_ids, self._ids, id_ends
        ).tobytes()
        encoded: list[bytes] = []
        start = word_start = 0
        for part, whole, word_end, end in zip(
            parts, as_a_whole.tolist(), word_ends.tolist(), id_ends.tolist(), strict=True
        ):
            if whole:
                part_ids = _array(self._encode(part.decode()))
                if self._lengths is not None and word_end > word_start:
                    self._learn_from(part.decode(), part_ids, words[word_start:word_end])
                encoded.append(part_ids.tobytes())
            else:
                encoded.append(ids[4 * start : 4 * end])
            start, word_start = end, word_end
        return encoded

    def _place(self, left: str, right: str) -> int:
        """Return where in `cuts` two characters are."""
        classes = self._class_bytes
        left_class, right_class = classes[min(ord(left), 0xFFFF)], classes[min(ord(right), 0xFFFF)]
        return left_class << 8 | right_class

    # --- encoding what isn't known

    def _learn(self, data: bytes, wanted: NDArray[np.int32]) -> None:
        """Encode words, given as (word, start, end in `data`): many in one call, if possible."""
        run: list[str] = []
        words: list[int] = []
        for word, start, end in wanted.tolist():
            content = data[start:end].decode()
            if run:
                between = self._between(run[-1], content)
                if between is None:
                    self._learn_run(run, words)
                    run, words = [], []
                elif between:
                    run.append(between)
                    words.append(-1)
            run.append(content)
            words.append(word)
        if run:
            self._learn_run(run, words)

    def _between(self, before: str, word: str) -> str | None:
        """Return what has to stand between two words to encode them together, None if nothing
        helps to tell their ids apart."""
        if self._lengths is None:
            return None
        if self._dropped:
            joins = self._cut_bytes[self._place(before[-1], " ")]
            return "" if joins and not self._never_behind[word.encode()[0]] else None
        place = self._place(before[-1], word[0])
        if (
            self._cut_bytes[place] == word_kernels.IN_RUN
            and len(word) > 1
            and self._behind_runs[word.encode()[1]]
        ):
            return ""
        glue = self._glue[place]
        return None if glue == 0 else "" if glue == _NOTHING else chr(glue)

    def _learn_run(self, run: Sequence[str], words: Sequence[int]) -> None:
        text = (" " * self._dropped).join(run)
        ids = _array(self._encode(text))
        if len(run) == 1:
            self._store(words[0], ids)
        elif not self._learn_from(text, ids, np.array(words, dtype=np.int32)):
            for word, content in zip(words, run, strict=True):
                if word >= 0:
                    self._store(word, _array(self._encode(content)))

    def _learn_from(self, text: str, ids: TokenArray, words: NDArray[np.int32]) -> bool:
        """Store the ids of the words that `text` consists of, if its ids can be told apart."""
        lengths = self._lengths
        if lengths is None or not lengths.hold_for(text):
            return False
        self._make_room(len(ids))
        num_stored = self._learned(text, ids, words, lengths)
        if num_stored == word_kernels.UNKNOWN_LENGTH:
            lengths.know(ids)
            num_stored = self._learned(text, ids, words, lengths)
        if num_stored == word_kernels.NOT_APART:
            return False
        self._num_stored_ids = num_stored
        return True

    def _learned(
        self, text: str, ids: TokenArray, words: NDArray[np.int32], lengths: TokenLengths
    ) -> int:
        num_stored: int = word_kernels.learn(
            ids,
            lengths.known,
            lengths.num_bytes_in_front(text),
            self._dropped,
            words,
            self._offsets,
            self._first_ids,
            self._num_ids,
            self._ids,
            self._num_stored_ids,
        )
        return num_stored

    def _store(self, word: int, ids: TokenArray) -> None:
        self._make_room(len(ids))
        self._ids[self._num_stored_ids : self._num_stored_ids + len(ids)] = ids
        self._first_ids[word] = self._num_stored_ids
        self._num_ids[word] = len(ids)
        self._num_stored_ids += len(ids)

    def _make_room(self, num_ids: int) -> None:
        while len(self._ids) < self._num_stored_ids + num_ids:
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])


def _array(ids: Sequence[int]) -> TokenArray:
    return np.array(ids, dtype=np.uint32)


def _first_bytes(characters: Iterable[str]) -> NDArray[np.bool_]:
    """Return which bytes some of the characters start with, in UTF-8."""
    table = np.zeros(256, dtype=np.bool_)
    for character in characters:
        table[character.encode()[0]] = True
    return table


def _glue(always: NDArray[np.bool_]) -> bytes:
    """Return by left << 8 | right what helps between two words: _NOTHING needed where `always` has
    a cut, else a character that makes it two cuts, 0 where there is none."""
    table = np.where(always, np.uint8(_NOTHING), np.uint8(0))
    for between in _GLUE:
        both = (table == 0) & always[:, between, None] & always[between]
        table[both] = between
    return table.tobytes()
