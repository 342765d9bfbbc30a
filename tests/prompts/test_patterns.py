"""What is read from a pre-tokenizer's pattern, against what Python's own matcher does."""

from __future__ import annotations

import itertools

import pytest
import regex  # type: ignore[import-untyped]

from prefixaudit.prompts.pattern_reading import UndecidableError
from prefixaudit.prompts.patterns import PatternPositions, literal
from prefixaudit.prompts.pre_tokenizers import step_of
from tests.prompts.tokenizers_of_each_kind import GPT2, LLAMA3, O200K

DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
PATTERNS = [GPT2, LLAMA3, O200K, DEEPSEEK, r"\p{N}{1,3}", r"\w+|[^\w\s]+", r"(?:ab|c){2,3}|\s"]
ALPHABET = "aBs'1., \n\r"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_match_joins_what_is_said_to_be_apart(pattern: str) -> None:
    """All texts of five characters over a small alphabet, with the package `regex` as oracle."""
    positions = PatternPositions(pattern)
    apart = {
        (left, right)
        for left, right in itertools.product(ALPHABET, repeat=2)
        if not positions.joins(left, right)
    }
    compiled = regex.compile(pattern)
    for characters in itertools.product(ALPHABET, repeat=5):
        text = "".join(characters)
        for match in compiled.finditer(text):
            joined = set(itertools.pairwise(match.group()))
            assert not joined & apart, (text, match.group())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_cut_texts_have_the_same_matches(pattern: str) -> None:
    """Where a pair is apart and nothing looks past it, matches left and right are independent."""
    positions = PatternPositions(pattern)
    compiled = regex.compile(pattern)
    for characters in itertools.product("aB'1. \n", repeat=4):
        text = "".join(characters)
        for cut in range(1, len(text)):
            left, right = text[cut - 1], text[cut]
            if positions.joins(left, right) or positions.looks_past(left):
                continue
            parts = compiled.findall(text[:cut]) + compiled.findall(text[cut:])
            assert compiled.findall(text) == parts, (text, cut)


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, O200K, DEEPSEEK])
def test_runs_of_whitespace_are_cut_the_same_with_and_without_what_follows(pattern: str) -> None:
    """All texts of six characters, with `regex` as oracle of what the step does."""
    step = step_of({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"})
    compiled = regex.compile(pattern)
    num_cuts = 0
    for characters in itertools.product("a.1 \n\r", repeat=6):
        text = "".join(characters)
        for cut in range(1, len(text)):
            left, right, behind = text[cut - 1], text[cut], text[cut + 1 : cut + 2]
            certain = step(left, right)
            if certain is None and left.isspace() and right.isspace() and behind.strip():
                certain = step.in_run(left, right, "a.1")
            if certain:
                num_cuts += 1
                parts = compiled.findall(text[:cut]) + compiled.findall(text[cut:])
                assert compiled.findall(text) == parts, (text, cut)
    assert num_cuts


def test_letters_and_line_ends_are_apart_and_letters_and_letters_are_not() -> None:
    positions = PatternPositions(LLAMA3)

    assert not positions.joins("a", "\n")
    assert positions.joins("a", "b")
    assert positions.joins(".", "\n")
    assert positions.looks_past(" ")
    assert positions.always_matches("\n")


def test_a_counted_match_is_not_one_of_a_single_character() -> None:
    positions = PatternPositions(r"a{2,3}|b{1,2}")

    assert not positions.always_matches("a")
    assert positions.always_matches("b")
    assert positions.joins("a", "a")


def test_classes_intersect_and_negate() -> None:
    positions = PatternPositions(r"[\p{L}&&[^aeiou]]|[^\P{N}5]|[\x30-\x{32}\-\]]")

    assert positions.always_matches("b")
    assert not positions.always_matches("a")
    assert positions.always_matches("7")
    assert not positions.always_matches("5")
    assert positions.always_matches("-")
    assert positions.always_matches("]")


def test_literal_text_means_itself() -> None:
    positions = PatternPositions(literal("a.b"))

    assert positions.joins("a", ".")
    assert not positions.joins("a", "x")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<=a)b",
        r"\bword\b",
        r"^a",
        r"a$",
        r"(a)\1",
        r"a(?=bc)",
        r"(?=a)a",
        r"a*",
        r"[[:alpha:]]+",
        r"\p{Unknown}",
        r"a{1,2}{3}",
        r"a(?i)b",
        r"(a",
        r"a)",
        r"[a",
        r"a{99}",
        r"\X",
        r"(?<name>a)",
    ],
)
def test_what_is_not_known_for_sure_is_undecidable(pattern: str) -> None:
    with pytest.raises(UndecidableError):
        PatternPositions(pattern)
