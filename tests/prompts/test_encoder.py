"""The law: whatever is reused, the ids are those of one plain call of `tokenizers`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts import cutting
from prefixaudit.prompts import encoder as encoder_module
from prefixaudit.prompts.boundaries import Boundaries
from prefixaudit.prompts.encoder import TextEncoder
from tests.prompts.tokenizers_of_each_kind import (
    CUT_AT_TOKENS,
    CUT_AT_WORDS,
    KINDS,
    SPECIAL,
    WHOLE,
    configuration,
    train,
)

AWKWARD = [
    *("a", "Z", "the", "tug", "quay", "Marit quay", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x00"),
    *("'s", "'LL", "1", "12", "345", ".", "!!", "...", "_", "é", "e\u0301", "\u0301", "ß", "İst"),
    *("你好", "の", "カ", "한글", "🙂", "👩\u200d💻", "\u200b", "\u00a0", "\u3000", "ﬁ", "①"),
    *("{", '"', "\\", "//", "# ", "word", "Hello", " world", "<", "|", "<|", "<|us", "▁", "Ġ"),
    *SPECIAL,
    "<mask>",
]
texts = st.lists(
    st.one_of(
        st.sampled_from(AWKWARD),
        st.sampled_from([" ", "\n", "a", "1", "."]).map(lambda c: c * 17),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
).map("".join)


@cache
def tokenizer_file(kind: str) -> Path:
    return train(kind, Path(mkdtemp()))


@cache
def encoder_of(kind: str) -> TextEncoder:
    return TextEncoder(tokenizer_file(kind), check_share=0)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut as often as is allowed, so that short texts have many parts."""
    monkeypatch.setattr(cutting, "_WHOLE_CHARACTERS", 4)
    monkeypatch.setattr(cutting, "_SHORT_CHARACTERS", 1)
    monkeypatch.setattr(cutting, "_LONG_CHARACTERS", 12)
    monkeypatch.setattr(cutting, "_STEP_CHARACTERS", 3)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=texts, more=texts, keep=st.integers(0, 60))
def test_ids_are_those_of_plain_encoding(kind: str, text: str, more: str, keep: int) -> None:
    """A text, the same with another end, and with another beginning: cold, then from the cache."""
    encoder = encoder_of(kind)
    encoder.forget()

    for each in (text, text[:keep] + more, more + text[keep:], text + more):
        for special in (False, True):
            ids = encoder.encode(each, add_special_tokens=special)
            assert ids.tolist() == encoder.plain(each, add_special_tokens=special).tolist()
            assert ids.dtype == np.uint32
            assert not ids.flags.writeable
    assert encoder.statistics.num_failed_proofs == 0


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
def test_boundaries_of_words_are_certain_where_the_pattern_says_so(kind: str) -> None:
    encoder = TextEncoder(tokenizer_file(kind))

    assert ("e", " ") in encoder.boundaries.pairs
    assert encoder.statistics.notes == []


@pytest.mark.parametrize("kind", CUT_AT_TOKENS)
def test_only_added_tokens_are_boundaries_where_words_are_not_certain(kind: str) -> None:
    encoder = TextEncoder(tokenizer_file(kind))

    assert not encoder.boundaries.pairs
    assert "<|user|>" in encoder.boundaries.cut_at
    assert encoder.statistics.notes[0].startswith("texts are cut at added tokens only")


@pytest.mark.parametrize("kind", WHOLE)
def test_tokens_matched_as_single_words_allow_no_cut(kind: str) -> None:
    encoder = TextEncoder(tokenizer_file(kind))

    assert not encoder.reuses
    assert "single word" in encoder.statistics.notes[0]


def test_second_turn_encodes_only_what_is_new() -> None:
    encoder = TextEncoder(tokenizer_file("llama3"), check_share=0)
    first = "<|user|>" + "Which berth for the Marit? " * 20 + "<|end|>"
    new = "<|user|>And after high water?"
    encoder.encode(first)
    before = encoder.statistics.num_encoded_tokens

    encoder.encode(first + new)

    num_new = len(encoder.plain(new)) - 1  # the added token's id is known
    assert encoder.statistics.num_encoded_tokens - before == num_new


def test_grown_raw_prompt_is_encoded_from_the_last_seam_before_its_end() -> None:
    encoder = TextEncoder(tokenizer_file("byte-level"), check_share=0)
    lines = [f"step {number} of the plan was done by the pilot\n" for number in range(200)]
    encoder.encode("".join(lines[:199]))
    before = encoder.statistics.num_encoded_tokens

    encoder.encode("".join(lines))

    # At most the two last parts, each no longer than a line may be before it is cut.
    encoded = encoder.statistics.num_encoded_tokens - before
    assert 0 < encoded <= 2 * len(encoder.plain("".join(lines[-20:])))


def test_a_wrong_boundary_is_found_by_its_proof_and_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tokenizer_file("llama3")
    wrong = Boundaries(
        added_tokens={},
        cut_at=frozenset(),
        first_is_special=False,
        pairs=frozenset({("a", "b"), (" ", " ")}),
        samples=(("a", "b"), (" ", " ")),
        notes=(),
    )
    monkeypatch.setattr(encoder_module, "find_boundaries", lambda _: wrong)

    encoder = TextEncoder(path)

    assert not encoder.reuses
    assert "failed its proof" in encoder.statistics.notes[0]


@pytest.mark.usefixtures("short_parts")
def test_a_proof_that_fails_in_the_run_ends_reuse_and_gives_the_plain_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tokenizer_file("llama3")
    wrong = Boundaries(
        added_tokens={},
        cut_at=frozenset(),
        first_is_special=False,
        pairs=frozenset({(" ", " ")}),
        notes=(),
    )
    monkeypatch.setattr(encoder_module, "find_boundaries", lambda _: wrong)
    monkeypatch.setattr(TextEncoder, "_pair_holds", lambda *_: True)
    encoder = TextEncoder(path, check_share=1.0)
    text = "one      two      three"

    ids = encoder.encode(text)

    assert ids.tolist() == encoder.plain(text).tolist()
    assert encoder.statistics.num_failed_proofs == 1
    assert not encoder.reuses


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_file("llama3")))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    encoder = TextEncoder(tmp_path / "tokenizer.json")

    text = "Which berth for the Marit, and when?"
    assert (
        encoder.encode(text).tolist() == TextEncoder(tokenizer_file("llama3")).plain(text).tolist()
    )


def test_dropout_switches_reuse_off(tmp_path: Path) -> None:
    value = configuration(tokenizer_file("llama3"))
    value["model"]["dropout"] = 0.1
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))

    encoder = TextEncoder(tmp_path / "tokenizer.json", check_share=0)

    assert not encoder.reuses
    assert "dropout" in encoder.statistics.notes[0]


def test_memory_of_the_cache_is_bounded() -> None:
    encoder = TextEncoder(tokenizer_file("byte-level"), cache_bytes=100_000, check_share=0)

    for number in range(3000):
        encoder.encode(f"request {number} is never seen again " * 3)

    kept = encoder._cache._young | encoder._cache._old
    assert sum(len(text) + len(ids) for text, ids in kept.items()) < 100_000


def test_half_a_surrogate_pair_is_a_unicode_error() -> None:
    with pytest.raises(UnicodeError):
        TextEncoder(tokenizer_file("byte-level")).encode("half \ud83d of it")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 3}', b"\xff\xfe"])
def test_broken_tokenizer_file_is_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"tokenizer\.json: not a tokenizer"):
        TextEncoder(path)


def test_token_position_is_found_in_the_text() -> None:
    encoder = TextEncoder(tokenizer_file("byte-level"))
    text = "<|user|>Café Marit"

    ids = encoder.plain(text)
    places = [encoder.character_of(text, index) for index in range(len(ids))]

    assert places[0] == 0
    assert places[1] == len("<|user|>")
    assert places == sorted(places)


@pytest.mark.usefixtures("short_parts")
def test_a_space_is_not_dropped_before_an_added_token() -> None:
    """The token would take the place of the word that the space was put in front of."""
    encoder = TextEncoder(tokenizer_file("prepend-rstrip"), check_share=0)
    text = "the tug <mask> the tug <mask> " * 8

    assert encoder.boundaries.drops_space
    assert encoder.encode(text).tolist() == encoder.plain(text).tolist()
