"""A prompt and its relative, and the runs of tokens that both have behind the place they part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from prefixaudit.core.prefixes import common_length
from prefixaudit.core.request import MediaSpan, Request, TokenArray
from prefixaudit.why.chunks import Chunks
from prefixaudit.why.prefix_tree import Node, PrefixTree

# Runs shorter than this are common phrases, not a prompt that is rendered again.
_SHORTEST_RUN: Final = 8
LEAST_COVERED: Final = 16
_SHORT_TAIL: Final = 256


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens [start, end) of a prompt, which stand at `there` and on in its relative."""

    start: int
    end: int
    there: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A prompt that later ones are compared with; tokens include the answer's that are cached."""

    position: int
    request: Request
    num_prompt_tokens: int
    num_tokens: int
    node: Node
    chunks: Chunks
    num_characters: int
    media: tuple[MediaSpan, ...]

    def tokens(self) -> TokenArray:
        return PrefixTree.tokens_of(self.node, self.num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prompt and its relative: they part at token `num_shared`, and share `runs` behind it.

    `is_weak`: the runs are a few tokens, which prove nothing where the requests don't agree.
    """

    reader: Remembered
    relative: Remembered
    num_shared: int
    runs: tuple[Run, ...]
    is_weak: bool = False

    @property
    def num_covered(self) -> int:
        return sum(run.end - run.start for run in self.runs)


def with_runs(pair: Pair, shared: int) -> Pair:
    """Find the runs behind the parting: equal chunks, grown as far as tokens agree."""
    reader, relative = pair.reader, pair.relative
    ours, theirs = reader.tokens()[: reader.num_prompt_tokens], relative.tokens()
    there = relative.chunks
    first_there = int(np.searchsorted(there.starts, pair.num_shared))
    places: dict[int, list[int]] = {}
    for number, start in zip(
        there.hashes[first_there:].tolist(), there.starts[first_there:].tolist(), strict=True
    ):
        places.setdefault(number, []).append(start)
    here = reader.chunks
    first = int(np.searchsorted(here.starts, pair.num_shared))
    runs: list[Run] = []
    done, after = pair.num_shared, pair.num_shared
    for number, start in zip(
        here.hashes[first:].tolist(), here.starts[first:].tolist(), strict=True
    ):
        if start < done or number not in places:
            continue
        # The same text may stand there several times: the next one after the last run.
        spots = places[number]
        spot = next((spot for spot in spots if spot >= after), spots[0])
        ahead = common_length(ours[start:], theirs[spot:])
        if not ahead:
            continue
        room = min(start - done, spot - pair.num_shared)
        back = common_length(ours[start - room : start][::-1], theirs[spot - room : spot][::-1])
        if ahead + back >= _SHORTEST_RUN:
            runs.append(Run(start - back, start + ahead, spot - back))
            done, after = start + ahead, spot + ahead
    if sum(run.end - max(run.start, shared) for run in runs) < LEAST_COVERED:
        runs = []
    return Pair(reader=reader, relative=relative, num_shared=pair.num_shared, runs=tuple(runs))


def with_short_runs(pair: Pair) -> Pair:
    """Look for runs too short to hold a chunk, in the few tokens right behind the parting."""
    start, length = pair.num_shared, pair.reader.num_prompt_tokens
    if length - start > _SHORT_TAIL:
        return pair
    ours = pair.reader.tokens()[start:length]
    theirs = pair.relative.tokens()[start : start + 2 * _SHORT_TAIL]
    if min(len(ours), len(theirs)) < LEAST_COVERED:
        return pair
    width = _SHORTEST_RUN
    grams = np.lib.stride_tricks.sliding_window_view(theirs, width)
    known = {gram.tobytes(): place for place, gram in reversed(list(enumerate(grams)))}
    runs: list[Run] = []
    place = 0
    while place + width <= len(ours):
        spot = known.get(ours[place : place + width].tobytes())
        if spot is None:
            place += 1
            continue
        ahead = common_length(ours[place:], theirs[spot:])
        runs.append(Run(start + place, start + place + ahead, start + spot))
        place += ahead
    if sum(run.end - run.start for run in runs) < LEAST_COVERED:
        return pair
    return replace(pair, runs=tuple(runs), is_weak=True)


def covered_by(reader: Remembered, candidate: Remembered, prefix: int) -> int:
    """Return how many tokens of the reader's chunks behind `prefix` the candidate has there too."""
    here, there = reader.chunks, candidate.chunks
    first = int(np.searchsorted(here.starts, prefix))
    last = int(np.searchsorted(here.ends, reader.num_prompt_tokens, side="right"))
    first_there = int(np.searchsorted(there.starts, prefix))
    if first >= last or first_there >= len(there.hashes):
        return 0
    known = np.isin(here.hashes[first:last], there.hashes[first_there:])
    return int((here.ends[first:last] - here.starts[first:last])[known].sum())
