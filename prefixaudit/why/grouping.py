"""Groups equal differences over the log, ranks them, and says in one sentence what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from prefixaudit.core.trace import Float64Array, Int64Array
from prefixaudit.core.why import Blame, UnstableCause, WhatIf
from prefixaudit.why.explaining import Explained
from prefixaudit.why.kinds import KINDS

# The first message is a place of its own; others move as conversations grow.
_INDEX: Final = re.compile(r"\[(?!0\])\d+\]")


def group_causes(
    explained: Sequence[Explained],
    request_ids: Sequence[str],
    *,
    lost_tokens: Int64Array,
    lost_flops: Float64Array | None,
    num_prompt_tokens: int,
) -> tuple[UnstableCause, ...]:
    """Return the causes, the dearest first.

    lost_tokens, lost_flops  [requests]: what the waterfall has in `unstable-prefix`
    """
    groups: dict[tuple[str, str, Blame, float | None], list[Explained]] = {}
    for pair in explained:
        source = pair.source or KINDS[pair.kind].source
        place = _INDEX.sub("[*]", pair.place)
        groups.setdefault((pair.kind, place, source, pair.period_s), []).append(pair)
    causes = [
        _cause(key, pairs, request_ids, lost_tokens, lost_flops, num_prompt_tokens)
        for key, pairs in groups.items()
    ]
    causes.sort(key=lambda c: (-(c.lost_flops or 0), -c.num_lost_tokens, -len(c.positions)))
    return tuple(causes)


def _cause(
    key: tuple[str, str, Blame, float | None],
    pairs: list[Explained],
    request_ids: Sequence[str],
    lost_tokens: Int64Array,
    lost_flops: Float64Array | None,
    num_prompt_tokens: int,
) -> UnstableCause:
    name, general_place, source, period_s = key
    kind = KINDS[name]
    pairs.sort(key=lambda pair: pair.position)
    first = pairs[0]
    place = first.place if len({pair.place for pair in pairs}) == 1 else general_place
    positions = [pair.position for pair in pairs]
    tokens = int(lost_tokens[positions].sum())
    title = kind.title
    if period_s is not None:
        title += f", new every {_duration(period_s)}"
    intent = kind.intent
    if name == "reasoning-dropped" and source == "client":
        intent = "fault"
    share = tokens / num_prompt_tokens if num_prompt_tokens else 0.0
    figure = f"up to {tokens:,} prompt tokens ({100 * share:.2f} % of the log) would be cached"
    if not tokens and any(pair.relative >= 0 for pair in pairs):
        figure = f"{len(pairs):,} requests would reuse up to a block more, and cached answers"
    elif not tokens:
        figure = f"it stands in {len(pairs):,} prompts"
    return UnstableCause(
        kind=name,
        title=title,
        place=place,
        source=source,
        intent=intent,
        period_s=period_s,
        positions=tuple(positions),
        request_ids=tuple(request_ids[position] for position in positions),
        relative_ids=tuple(
            request_ids[pair.relative] if pair.relative >= 0 else "" for pair in pairs
        ),
        first_token=first.first_token,
        character=first.character,
        num_lost_tokens=tokens,
        lost_flops=None if lost_flops is None else float(lost_flops[positions].sum()),
        advice=f"{kind.advice.format(place=place)}: {figure}.",
        details=dict(first.details),
    )


def advice_with(cause: UnstableCause, what_if: WhatIf, num_cached_tokens: int) -> str:
    """Return the advice with the figure of a replay: what is cached then, and the hit rate."""
    kind = KINDS[cause.kind]
    more = what_if.num_cached_tokens - num_cached_tokens
    rate = (
        "" if what_if.token_hit_rate is None else f", hit rate {100 * what_if.token_hit_rate:.2f} %"
    )
    return (
        f"{kind.advice.format(place=cause.place)}: {more:+,} cached tokens"
        f"{rate} (replayed: {what_if.about})."
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            count = round(seconds / size)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} s"
