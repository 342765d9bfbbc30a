"""A cut between two characters that are certain: both sides encode as they do together."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.prompts.certain_pairs import _LATIN, Pair
from prefixaudit.prompts.encoder import TextEncoder
from tests.prompts.test_encoder import texts, tokenizer_file
from tests.prompts.tokenizers_of_each_kind import CUT_AT_WORDS, configuration


@cache
def encoder_of(kind: str) -> TextEncoder:
    return TextEncoder(tokenizer_file(kind), check_share=0)


@cache
def pairs_of(kind: str) -> list[Pair]:
    return sorted(encoder_of(kind).boundaries.pairs)


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
@settings(max_examples=250, deadline=None)
@given(before=texts, after=texts, data=st.data())
def test_sides_of_a_certain_pair_are_encoded_as_together(
    kind: str, before: str, after: str, data: st.DataObject
) -> None:
    encoder = encoder_of(kind)
    alike = encoder.boundaries.alike
    left, right = data.draw(st.sampled_from(pairs_of(kind)))
    left = data.draw(st.sampled_from(alike.get(left, left)))
    right = data.draw(st.sampled_from(alike.get(right, right)))
    drops_space = encoder.boundaries.drops_space
    # Where the space is dropped, an added token must not stand right behind it.
    first, second = "w " + before + left, "x" + after if drops_space else right + after

    whole = encoder.plain(first + (right if drops_space else "") + second).tolist()

    assert whole == encoder.plain(first).tolist() + encoder.plain(second).tolist()


@pytest.mark.parametrize("kind", ["byte-level", "o200k", "split-digits", "lowercase-nfkc"])
@settings(max_examples=400, deadline=None)
@given(before=texts, after=texts, data=st.data())
def test_a_run_of_whitespace_is_cut_before_its_last_character(
    kind: str, before: str, after: str, data: st.DataObject
) -> None:
    encoder = encoder_of(kind)
    left, right = data.draw(st.sampled_from(sorted(encoder.boundaries.in_runs)))
    behind = data.draw(st.sampled_from(sorted(encoder.boundaries.behind_runs)))
    first, second = before + left, right + behind + after

    whole = encoder.plain(first + second).tolist()

    assert whole == encoder.plain(first).tolist() + encoder.plain(second).tolist()


def test_a_run_is_not_cut_before_what_an_earlier_step_may_part_from_it() -> None:
    """The step that takes runs then sees one that ends, with nothing behind it."""
    assert "x" in encoder_of("split-digits").boundaries.behind_runs
    assert "0" not in encoder_of("split-digits").boundaries.behind_runs
    assert "0" in encoder_of("byte-level").boundaries.behind_runs
    assert "<" not in encoder_of("byte-level").boundaries.behind_runs  # it may begin a token


def test_runs_are_not_cut_where_a_token_takes_the_spaces_beside_it() -> None:
    assert (" ", " ") in encoder_of("o200k").boundaries.in_runs
    assert ("\n", "x") in pairs_of("o200k")
    boundaries = encoder_of("llama3").boundaries  # which has such a token
    assert not boundaries.in_runs
    assert not any(left.isspace() for left, _ in boundaries.pairs)


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
def test_every_kind_of_pair_is_among_the_samples(kind: str) -> None:
    boundaries = encoder_of(kind).boundaries

    assert 0 < len(boundaries.samples) < 1000
    first_of = {c: first for first, characters in boundaries.alike.items() for c in characters}
    samples = {tuple(first_of.get(c, c) for c in pair) for pair in boundaries.samples}
    assert samples <= boundaries.pairs


def test_contractions_are_not_cut() -> None:
    assert {("n", "'"), ("n", "."), (",", " "), ("x", "1"), ("1", "x")} <= set(pairs_of("llama3"))
    assert ("'", "s") not in pairs_of("llama3")
    assert ("'", "s") not in pairs_of("byte-level")
    assert ("'", "z") in pairs_of("byte-level")
    assert ("n", "'") not in pairs_of("o200k")  # a contraction belongs to its word
    assert ("n", "T") in pairs_of("o200k")


def test_neighbours_in_an_added_token_are_not_cut() -> None:
    contents = [
        token["content"] for token in configuration(tokenizer_file("llama3"))["added_tokens"]
    ]

    assert "<|end|>" in contents
    assert ("d", "|") not in pairs_of("llama3")
    assert ("d", "!") in pairs_of("llama3")


def test_nothing_is_cut_before_what_may_compose_with_the_next_character() -> None:
    rights = {right for _, right in pairs_of("lowercase-nfkc")}

    assert "1" in rights
    assert not any(right.isalpha() for right in rights)


def test_ascii_characters_that_compose_are_letters_and_three_signs() -> None:
    """All of Unicode: what `certain_pairs` relies on where a normalizer composes."""
    composed: dict[str, set[str]] = {}
    for code in range(sys.maxunicode + 1):
        decomposed = unicodedata.normalize("NFD", chr(code))
        if decomposed[0].isascii() and unicodedata.normalize("NFC", decomposed) == chr(code):
            composed.setdefault(decomposed[0], set()).add(chr(code))
    signs = {first: sorted(found - {first}) for first, found in composed.items()}

    assert {first: found for first, found in signs.items() if found and not first.isalpha()} == {
        "<": ["\u226e"],
        "=": ["\u2260"],
        ">": ["\u226f"],
    }
    letters = set().union(*(found for first, found in signs.items() if first.isalpha()))
    assert {c for c in letters if unicodedata.normalize("NFC", c) == c} <= set(_LATIN)


def test_entries_of_the_vocabulary_that_are_never_merged_to_allow_no_cut() -> None:
    """With ignore_merges a part that is an entry becomes that entry, whatever the merges say."""
    from prefixaudit.prompts.boundaries import find_boundaries

    value = configuration(tokenizer_file("byte-level-no-pattern"))
    assert find_boundaries(value).pairs

    value["model"]["ignore_merges"] = True

    assert not find_boundaries(value).pairs
