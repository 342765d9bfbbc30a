"""Shell texts as words: what a shell would pass on, and what only a shell knows."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.deployment.sources._shell import commands


def words(text: str) -> list[list[str | None]]:
    return [[word.text for word in command.words] for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", [["a", "b"]]),
        ("a 'b c' \"d e\"f", [["a", "b c", "d ef"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a; b && c | d &", [["a"], ["b"], ["c"], ["d"]]),
        ("a > x 2>&1 < y b", [["a", "b"]]),
        ("a <<E\nb c\nE\nd", [["a"], ["d"]]),
        ("a '\n# no comment\n'", [["a", "\n# no comment\n"]]),
        ("if a; then b; fi", [["a"], ["b"]]),
        ("X=1 a $X", [["a", None]]),
        ('X=1\na $X ${X} "${X}2"', [["a", "1", "1", "12"]]),
        ("X='b c'\na $X \"$X\"", [["a", "b", "c", "b c"]]),
        ("a ${X:-b} ${X-c}", [["a", "b", "c"]]),
        ("a $X $(b) `c`", [["a", None, None, None]]),
        ("X=$Y\na $X", [["a", None]]),
        ("X=1\nX=$Y\na $X", [["a", None]]),
        ("A=(b 'c d')\na \"${A[@]}\"", [["a", "b", "c d"]]),
        ("A=(b)\nA+=(c)\na ${A[@]}", [["a", "b", "c"]]),
        ('A=(b $C)\na "${A[@]}"', [["a", "b", None]]),
        ("a '$X' \\$X", [["a", "$X", "$X"]]),
        ("a 'unended", [["a", "unended"]]),
        ("a $(b", [["a", None]]),
        ("a\r\nb", [["a"], ["b"]]),
    ],
)
def test_words_are_those_of_a_shell(text: str, expected: list[list[str | None]]) -> None:
    assert words(text) == expected


@given(
    st.lists(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0\1\r")), min_size=1
    )
)
def test_quoted_words_come_back(items: list[str]) -> None:
    """`shlex.quote` is the standard library's own idea of a word; `.` can't be an assignment."""
    text = " ".join([".", *(shlex.quote(item) for item in items)])

    assert words(text) == [[".", *items]]


@given(st.text(alphabet="ab =$(){}[]'\"`\\\n#;&|<>-@*:"))
def test_any_text_ends(text: str) -> None:
    assert all(command.words for command in commands(text))


def test_unknown_word_shows_names_and_no_value() -> None:
    [command] = commands("a --key=secret$X$(cat secret)")

    assert str(command.words[1]) == "--key=$X $(…)"


def test_environment_holds_for_its_command_and_what_is_exported_for_all() -> None:
    first, second = commands("export A=1\nB=2 x\ny")

    assert first.environment == {"A": "1", "B": "2"}
    assert second.environment == {"A": "1"}
