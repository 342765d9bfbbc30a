"""What is found where two prompts part, and what can be said of the text behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from prefixaudit.core.why import Blame
from prefixaudit.why.rendering import Text
from prefixaudit.why.runs import Pair
from prefixaudit.why.volatile import Volatile, find_volatile

# Behind a volatile value the prompts soon agree again; a repository's state takes some lines.
_VALUE_TOKENS = 96
_SMALL_TOKENS = 2_048
# Where requests don't agree by their structure, this much text (or half of what follows) that
# is found again is the same text at another place; less is a phrase that both happen to have.
_MUCH_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Found:
    """One kind of difference at one place; `source` None is the kind's own."""

    kind: str
    place: str
    source: Blame | None = None
    period_s: float | None = None
    character: int | None = None
    details: Mapping[str, int | str] = field(default_factory=dict)


def is_reordered(pair: Pair) -> bool:
    places = [run.there for run in pair.runs]
    return any(after < before for before, after in pairwise(places))


def covers_most(pair: Pair) -> bool:
    """Say whether nearly all of the shorter prompt's rest stands in the other one too."""
    rest = min(pair.reader.num_prompt_tokens, pair.relative.num_prompt_tokens) - pair.num_shared
    return pair.num_covered >= 0.7 * rest


def is_more_than_a_phrase(pair: Pair) -> bool:
    """Say whether what is found again is a good part of what follows, not words in passing."""
    rest = pair.reader.num_prompt_tokens - pair.num_shared
    return pair.num_covered >= min(_MUCH_TOKENS, rest / 2)


def volatile_at(pair: Pair, earlier: Text, later: Text, place: int) -> Volatile | None:
    if not pair.runs:
        return None
    first = pair.runs[0]
    apart = max(first.start, first.there) - pair.num_shared
    found = find_volatile(earlier.text, later.text, place) if apart <= _SMALL_TOKENS else None
    if found is not None and found.kind != "git-status" and apart > _VALUE_TOKENS:
        return None
    return found
