"""Words of a text: cut where pairs are certain, encoded once, and the ids are the plain ones."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.prompts import encoder as encoder_module
from prefixaudit.prompts.boundaries import Boundaries
from prefixaudit.prompts.cutting import Cutter
from prefixaudit.prompts.encoder import TextEncoder
from prefixaudit.prompts.words import WordEncoder
from tests.prompts.test_encoder import texts, tokenizer_file
from tests.prompts.tokenizers_of_each_kind import CUT_AT_WORDS

# Kinds whose tokens' lengths are known, so that many words are learned from one call.
WITH_LENGTHS = (
    "byte-level",
    "byte-level-prefix-space",
    "llama3",
    "o200k",
    "split-digits",
    "metaspace-first",
    "metaspace-always",
    "whole-text-bpe",
    "byte-level-no-pattern",
    "prepend",
    "prepend-rstrip",
    "metaspace-unsplit",
)
WORDS = [
    "tide",
    "quay 7",
    "\n    return",
    ")\n  \n",
    "\t\tx",
    "Marit's",
    "x=1;",
    "  ",
    "\n\n",
    "don't",
    "9",
    "12345",
    "é",
    "…",
    "(a)",
]
sentences = st.lists(st.sampled_from([*WORDS, " ", ", ", "_"]), max_size=60).map("".join)


@cache
def encoder_of(kind: str) -> TextEncoder:
    return TextEncoder(tokenizer_file(kind), check_share=0)


def words_of(kind: str, *, max_bytes: int = 1 << 20, factor: int | None = None) -> WordEncoder:
    encoder = encoder_of(kind)
    return WordEncoder(
        encoder.boundaries,
        lambda text: encoder.plain(text).tolist(),
        encoder._token_lengths,
        max_bytes=max_bytes,
        factor=factor,
    )


def parts_of(kind: str, several: Sequence[str]) -> list[str]:
    """What the encoder gives to `words`: no part holds a token around which texts are cut."""
    cutter = Cutter(encoder_of(kind).boundaries)
    return [part for text in several for part in cutter.parts(text) if isinstance(part, str)]


class CountingEncode:
    """The plain encoding, and how often it was asked."""

    def __init__(self, kind: str) -> None:
        self._encoder = encoder_of(kind)
        self.texts: list[str] = []

    def __call__(self, text: str) -> Sequence[int]:
        self.texts.append(text)
        return self._encoder.plain(text).tolist()  # type: ignore[no-any-return]


def counting(kind: str, *, max_bytes: int = 1 << 20) -> tuple[WordEncoder, CountingEncode]:
    encode = CountingEncode(kind)
    encoder = encoder_of(kind)
    return (
        WordEncoder(encoder.boundaries, encode, encoder._token_lengths, max_bytes=max_bytes),
        encode,
    )


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
@pytest.mark.parametrize(
    ("max_bytes", "factor"),
    [(1 << 20, None), (1 << 14, None), (1 << 20, 0)],
    ids=["roomy", "cleared often", "all hashes equal"],
)
@settings(max_examples=25, deadline=None)
@given(several=st.lists(st.one_of(texts, sentences), min_size=1, max_size=6))
def test_ids_are_those_of_plain_encoding(
    kind: str, max_bytes: int, factor: int | None, several: list[str]
) -> None:
    """New, seen before, learned, and in another order."""
    words = words_of(kind, max_bytes=max_bytes, factor=factor)
    several = parts_of(kind, several)
    expected = [encoder_of(kind).plain(text).tobytes() for text in several]

    assert words.encode(several) == expected
    assert words.encode(several) == expected
    for text, ids in zip(several[::-1], expected[::-1], strict=True):
        assert words.encode([text]) == [ids]


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
@settings(max_examples=40, deadline=None)
@given(several=st.lists(st.one_of(texts, sentences), max_size=5))
def test_encoder_with_words_gives_the_plain_ids(kind: str, several: list[str]) -> None:
    encoder = encoder_of(kind)
    encoder.forget()
    encoder._new_characters = encoder_module._FEW_CHARACTERS + 1

    for text in several * 2:
        encoder._cache.clear()
        for special in (False, True):
            ids = encoder.encode(text, add_special_tokens=special)
            assert ids.tolist() == encoder.plain(text, add_special_tokens=special).tolist()


def _begins_token(character: str, boundaries: Boundaries) -> bool:
    return any(c.encode()[0] == character.encode()[0] for c in boundaries.never_behind)


def cut(text: str, boundaries: Boundaries) -> list[str]:
    """What the kernel should do, a character at a time."""
    words, start = [], 0
    first_of = {c: first for first, characters in boundaries.alike.items() for c in characters}
    for place in range(1, len(text)):
        pair = (text[place - 1], text[place])
        pair = (first_of.get(pair[0], pair[0]), first_of.get(pair[1], pair[1]))
        behind = text[place + 1 : place + 2]
        in_run = pair in boundaries.in_runs and behind in boundaries.behind_runs
        if place <= start or not (pair in boundaries.pairs or in_run):
            continue
        if boundaries.drops_space and (not behind or _begins_token(behind, boundaries)):
            continue
        words.append(text[start:place])
        start = place + boundaries.drops_space
    words.append(text[start:])
    return words


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(texts, sentences))
def test_words_are_cut_at_every_certain_pair(kind: str, text: str) -> None:
    words = words_of(kind)
    if not text or max(map(len, cut(text, encoder_of(kind).boundaries))) > 60:
        return

    words.encode([text])

    num_words = int(words._counts[0])
    stored = words._text.tobytes()
    found = [stored[words._offsets[n] : words._offsets[n + 1]].decode() for n in range(num_words)]
    assert found == list(dict.fromkeys(cut(text, encoder_of(kind).boundaries)))


@pytest.mark.parametrize("kind", WITH_LENGTHS)
def test_words_are_learned_from_the_part_they_stand_in(kind: str) -> None:
    """The same words in another order need no call at all."""
    words, encode = counting(kind)
    first = "the pilots keep the berth plan and the harbour master is never told"

    words.encode([first, first.replace("the pilots", "the masters")])
    assert len(encode.texts) <= 3
    encode.texts.clear()
    again = "the harbour master is told and the pilots keep the plan"

    assert words.encode([again])[0] == encoder_of(kind).plain(again).tobytes()
    assert encode.texts == []


@pytest.mark.parametrize("kind", sorted(set(CUT_AT_WORDS) - set(WITH_LENGTHS)))
def test_words_are_encoded_when_seen_again_where_lengths_are_not_known(kind: str) -> None:
    words, encode = counting(kind)
    text = "the pilot keeps the berth plan"

    words.encode([text])
    assert encode.texts == [text]
    words.encode([text])
    encode.texts.clear()

    assert (
        words.encode([text + " the plan"])[0]
        == encoder_of(kind).plain(text + " the plan").tobytes()
    )
    assert len(encode.texts) <= 1  # what no pair cuts
    assert encoder_of(kind)._token_lengths is None


def test_nothing_is_learned_where_an_added_token_moves_what_is_put_in_front() -> None:
    """A space is put before the first text, but not before a token, and before what follows one."""
    words, _ = counting("byte-level-prefix-space")
    first, second = "Marit quay", "Marit quay ϊ of<|user|>xand the berth"

    for text in (second, first):
        words.encode([text])
        assert words.encode([text]) == [encoder_of("byte-level-prefix-space").plain(text).tobytes()]


def test_new_words_of_a_known_text_are_encoded_in_one_call() -> None:
    words, encode = counting("llama3")
    known = " ".join(f"{letter}{letter}" for letter in string.ascii_lowercase) * 8
    words.encode([known])
    words.encode([known])
    encode.texts.clear()

    words.encode([known.replace("dd", "quay").replace("ee", "tide", 1)])

    assert encode.texts == [" quay tide"]


@pytest.mark.parametrize("kind", ["llama3", "wordpiece"])
@pytest.mark.parametrize(
    "alphabet", [string.ascii_letters, "".join(map(chr, range(0x4E00, 0x5E00)))]
)
def test_text_whose_words_never_recur_is_encoded_as_a_whole(kind: str, alphabet: str) -> None:
    """One call a part, as without words."""
    words, encode = counting(kind)
    draw = random.Random(7)
    parts = [" ".join("".join(draw.choices(alphabet, k=12)) for _ in range(40)) for _ in range(30)]

    words.encode(parts)

    assert set(encode.texts) - {" "} == set(parts)
    assert len(encode.texts) <= len(parts) + 1


def test_words_are_looked_for_now_and_then_in_text_where_none_recur() -> None:
    words, encode = counting("llama3")
    draw = random.Random(7)

    def random_text() -> str:
        return " ".join("".join(draw.choices(string.ascii_letters, k=40)) for _ in range(100))

    for _ in range(40):
        words.encode([random_text()])
    num_seen = int(words._counts[0])
    for _ in range(20):
        words.encode([random_text()])
    assert 0 < words._counts[0] - num_seen < 20 * 100 / 2

    for _ in range(4 * 4):
        words.encode(["the harbour master keeps the berth plan and the pilots are told"])
    encode.texts.clear()

    words.encode(["the harbour master keeps the plan"])
    assert encode.texts == []


def test_characters_of_kinds_beyond_the_last_class_are_not_cut() -> None:
    letters = [chr(0x400 + number) for number in range(200)]
    boundaries = replace(
        encoder_of("llama3").boundaries,
        pairs=frozenset((letter, " ") for letter in letters),
        alike={letter: letter for letter in letters},
    )
    words = WordEncoder(boundaries, lambda text: [len(text)], None, max_bytes=1 << 20)

    words.encode([f"{letters[0]} {letters[199]} \u4e16 \u4e16"])

    assert words._text[: words._offsets[1]].tobytes().decode() == letters[0]
    assert words._counts[0] == 2


def test_memory_is_bounded_and_words_are_forgotten_when_it_is_full() -> None:
    words, _ = counting("llama3", max_bytes=1 << 14)
    for number in range(3000):
        text = f"berth {number} of the harbour{number} has a plan"
        assert words.encode([text]) == [encoder_of("llama3").plain(text).tobytes()]
        assert words._counts[0] <= words._max_words == (1 << 14) // 64

    arrays = [value for value in vars(words).values() if isinstance(value, np.ndarray)]
    tables = sum(array.nbytes for array in arrays) - words._classes.nbytes - words._cuts.nbytes
    assert tables < 2 << 14


def test_a_long_part_without_room_is_encoded_as_a_whole() -> None:
    words, encode = counting("llama3", max_bytes=1 << 12)
    text = "a berth, a plan. " * 50

    assert words.encode([text]) == [encoder_of("llama3").plain(text).tobytes()]
    assert encode.texts == [text]


def test_words_are_complete_after_an_interrupted_call() -> None:
    words, encode = counting("llama3")
    text = "the pilot keeps the berth plan " * 4
    words.encode([text])

    def interrupted(_: str) -> Sequence[int]:
        raise KeyboardInterrupt

    words._encode = interrupted
    with pytest.raises(KeyboardInterrupt):
        words.encode([text + "and the harbour"])
    words._encode = encode

    expected = encoder_of("llama3").plain(text + "and the harbour").tobytes()
    assert words.encode([text + "and the harbour"]) == [expected]


def test_words_begin_after_the_first_characters_and_the_next_text_is_proved() -> None:
    encoder = TextEncoder(tokenizer_file("llama3"), check_share=1e-9)
    line = "the pilot keeps the berth plan, number {}\n"
    text = "".join(map(line.format, range(encoder_module._FEW_CHARACTERS // len(line))))
    encoder.encode(text[: encoder_module._FEW_CHARACTERS])
    had_words = encoder._words is not None
    num_proofs = encoder.statistics.num_proofs

    for text in ("the plan of the", "the berth plan of the pilot", "keeps the berth", "the plan"):
        encoder.encode(text)

    assert not had_words
    assert encoder._words is not None
    assert encoder.statistics.num_proofs == num_proofs + 1
    assert encoder.statistics.num_failed_proofs == 0


def test_a_wrong_cut_between_words_is_found_by_the_run_s_own_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = Boundaries(
        added_tokens={},
        cut_at=frozenset(),
        first_is_special=False,
        pairs=frozenset({("h", "e"), ("i", "l")}),
        notes=(),
    )
    monkeypatch.setattr(encoder_module, "find_boundaries", lambda _: wrong)
    monkeypatch.setattr(encoder_module, "_FEW_CHARACTERS", 0)
    encoder = TextEncoder(tokenizer_file("lowercase-nfkc"), check_share=1.0)
    text = "the pilot keeps the berth plan"

    for _ in range(4):
        encoder._cache.clear()
        ids = encoder.encode(text)
        assert ids.tolist() == encoder.plain(text).tolist()

    assert encoder.statistics.num_failed_proofs == 1
    assert not encoder.reuses
