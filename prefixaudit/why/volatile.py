"""Says what stands where two texts part: a clock, an id, a path, a counter, or only white space.

Both texts are the same up to `place`. What is found has to stand there in both, and differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_AROUND: Final = 96
_BEFORE_GIT: Final = 400
_ALIKE: Final = 16
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec)[a-z]*\.?"
_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
# (pattern, seconds between two of its readings); a capture group names a finer part.
_TIMES: Final = (
    (re.compile(r"(?<![\d:])\d{1,2}:\d{2}:\d{2}[.,]\d+", re.I), 0.001),
    (re.compile(r"(?<![\d:])\d{1,2}:\d{2}:\d{2}", re.I), 1.0),
    (re.compile(r"\b1[5-9]\d{11}\b"), 0.001),
    (re.compile(r"\b1[5-9]\d{8}\.\d+\b"), 0.001),
    (re.compile(r"\b1[5-9]\d{8}\b"), 1.0),
    (re.compile(r"\b\d{8}T\d{6}\b"), 1.0),
    (re.compile(r"(?<![\d:])\d{1,2}:\d{2}(?![\d:])(?:\s?[ap]\.?m\b\.?)?", re.I), 60.0),
    (re.compile(r"\b\d{1,2}\s?[ap]\.?m\b\.?", re.I), 3600.0),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}(?=\b|T)", re.I), 86400.0),
    (re.compile(r"\b\d{4}/\d{1,2}/\d{1,2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"), 86400.0),
    (re.compile(rf"\b\d{{1,2}}(?:st|nd|rd|th)?\.?\s{_MONTH}(?:,?\s\d{{4}})?", re.I), 86400.0),
    (re.compile(rf"\b{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s\d{{4}})?", re.I), 86400.0),
    (re.compile(rf"\b{_DAY}", re.I), 86400.0),
)
_GAP: Final = re.compile(r"[\s,;T@-]*(?:at|on|um|UTC|GMT|Z)?[\s,;T@-]*\Z")
_WORD: Final = re.compile(r"[A-Za-z0-9_+=-]")
_PATH_CHARACTER: Final = re.compile(r"[^\s\"'`<>|,;()\[\]{}]")
_PATH: Final = re.compile(r"(?:^|[=:(])(?:~?[/\\]|\.{1,2}[/\\]|[A-Za-z]:[\\/]|file:)|\w[/\\]\w")
_GIT: Final = re.compile(
    r"git[ _-]?status|current branch|main branch|recent commits|on branch|\bHEAD\b|"
    r"working tree|untracked files|git log|changes not staged|\bbranch:",
    re.I,
)
_BILLING: Final = re.compile(r"billing-header|\bcch=", re.I)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I)


@dataclass(frozen=True, slots=True)
class Volatile:
    """What stands there, and for a clock the seconds after which it prints something else."""

    kind: str
    period_s: float | None = None


def line_around(text: str, place: int) -> tuple[int, int]:
    """Return where the line that holds `place` begins and ends (without its line feed)."""
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return start, len(text) if end < 0 else end


def find_volatile(first: str, second: str, place: int) -> Volatile | None:
    """Return what stands at the place where two texts part, None for nothing known."""
    if _billing(first, place) and _billing(second, place):
        return Volatile("billing-header")
    mine, other = clock_at(first, place), clock_at(second, place)
    if (
        mine is not None
        and other is not None
        and (first[mine[0] : mine[1]] != second[other[0] : other[1]])
    ):
        return Volatile("clock", min(mine[2], other[2]))
    if _in_git_text(first, place) and _in_git_text(second, place):
        return Volatile("git-status")
    words = word_at(first, place, _PATH_CHARACTER), word_at(second, place, _PATH_CHARACTER)
    if words[0] != words[1] and all(_PATH.search(word) for word in words):
        return Volatile("path")
    if _goes_on_alike(first, second, place):
        found = _number_or_id(word_at(first, place, _WORD), word_at(second, place, _WORD))
        if found is not None:
            return found
    return _white_space(first, second, place)


def clock_at(text: str, place: int) -> tuple[int, int, float] | None:
    """Return start, end and resolution (seconds) of the date or time that `place` touches."""
    begin = max(0, place - _AROUND)
    window = text[begin : place + _AROUND]
    at = place - begin
    found: list[tuple[int, int, float]] = []
    for pattern, seconds in _TIMES:
        for match in pattern.finditer(window):
            if not any(start < match.end() and match.start() < end for start, end, _ in found):
                found.append((match.start(), match.end(), seconds))
    found.sort()
    groups: list[tuple[int, int, float]] = []
    for start, end, seconds in found:
        if groups and _GAP.match(window[groups[-1][1] : start]):
            groups[-1] = (groups[-1][0], end, min(groups[-1][2], seconds))
        else:
            groups.append((start, end, seconds))
    for start, end, seconds in groups:
        if start <= at <= end:
            return begin + start, begin + end, seconds
    return None


def word_at(text: str, place: int, characters: re.Pattern[str]) -> str:
    """Return the run of such characters around `place`, at most 256 on each side."""
    start = place
    while start > 0 and place - start < 256 and characters.match(text[start - 1]):
        start -= 1
    end = place
    while end < len(text) and end - place < 256 and characters.match(text[end]):
        end += 1
    return text[start:end]


def _billing(text: str, place: int) -> bool:
    start, end = line_around(text, place)
    return _BILLING.search(text, max(start, place - 1024), min(end, place + 1024)) is not None


def _in_git_text(text: str, place: int) -> bool:
    """Say whether the paragraphs just before speak of a git repository's state."""
    return _GIT.search(text, max(0, place - _BEFORE_GIT), place + 40) is not None


def _goes_on_alike(first: str, second: str, place: int) -> bool:
    """Say whether the same text follows the words that differ."""
    rests = []
    for text in (first, second):
        end = place
        while end < len(text) and end - place < 256 and _WORD.match(text[end]):
            end += 1
        rests.append(text[end : end + _ALIKE])
    return rests[0] == rests[1]


def _number_or_id(first: str, second: str) -> Volatile | None:
    if first == second or not first or not second:
        return None
    if first.isdigit() and second.isdigit():
        is_count = max(len(first), len(second)) <= 7
        return Volatile("counter" if is_count else "random-id")
    if _looks_random(first) and _looks_random(second):
        return Volatile("random-id")
    return None


def _looks_random(word: str) -> bool:
    if _UUID.search(word):
        return True
    tail = re.split(r"[_=-]", word)[-1] or word
    digits = sum(character.isdigit() for character in tail)
    letters = sum(character.isalpha() for character in tail)
    if len(tail) >= 5 and re.fullmatch(r"[0-9a-f]+", tail, re.I) and digits and letters:
        return True
    if len(tail) >= 8 and digits >= 2 and letters:
        return True
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(tail) if b.isalpha())
    return len(tail) >= 12 and letters > 0 and changes >= 4


def _white_space(first: str, second: str, place: int) -> Volatile | None:
    ours, theirs = first[place : place + 256].split(), second[place : place + 256].split()
    count = min(len(ours), len(theirs), 8) - 1
    differs = first[place : place + 1].isspace() or second[place : place + 1].isspace()
    if count >= 2 and differs and ours[:count] == theirs[:count]:
        return Volatile("whitespace")
    return None
