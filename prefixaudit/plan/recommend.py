"""One recommendation from the options, with its reasons and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from prefixaudit.plan.report import CurvePoint, Option, Range, Recommendation
from prefixaudit.plan.shape import Cliff

MOST_REPLICAS: Final = 64
"""How many replicas are tried for a target."""

# A larger pool is worth it as long as doubling it gains more than this share of the tokens.
_WORTH_DOUBLING: Final = 0.02
_ROOM_ABOVE_CLIFF: Final = 1.1


def recommend(
    options: Sequence[Option],
    curve: Sequence[CurvePoint],
    cliffs: Sequence[Cliff],
    *,
    capacity_blocks: int | None,
    hit_rate: float | None,
    endless_hit_rate: float,
    ttft_target_s: float | None,
    assumptions: Sequence[str],
) -> Recommendation | None:
    """Return what to do; None where nothing is ever hit.

    `hit_rate` is that of the pool of `capacity_blocks`, None where no size is given.
    With a TTFT target: the option that meets it with the fewest GPUs at worst (then the cheapest,
    then the smallest pool). Without: the smallest pool from which doubling gains 2 points or less,
    with a tenth more room where that stands just above a cliff.
    """
    if ttft_target_s is not None and any(option.timed is not None for option in options):
        return _by_target(options, ttft_target_s, assumptions)
    here = None if capacity_blocks is None else (capacity_blocks, hit_rate)
    return _by_curve(curve, cliffs, here, endless_hit_rate, tuple(assumptions))


def _by_target(
    options: Sequence[Option], target_s: float, assumptions: Sequence[str]
) -> Recommendation:
    sized = [option for option in options if option.gpus_needed is not None]
    if not sized:
        reasons = [f"up to {MOST_REPLICAS} replicas of each were tried, at both ends of the range"]
        # A pool too small for any prompt serves nobody: its percentiles are NaN.
        prefills = [option.timed.prefill.p95_s[1] for option in options if option.timed is not None]
        fastest = min((seconds for seconds in prefills if isfinite(seconds)), default=0.0)
        if fastest > target_s:
            reasons.append(
                f"the prefill alone, without waiting, takes up to {fastest:.2g} s at p95: more "
                "replicas don't shorten it; more hits, more GPUs a replica or a looser target do"
            )
        return Recommendation(
            action=f"none of the options meets a TTFT p95 of {target_s:g} s",
            reasons=tuple(reasons),
            rests_on=tuple(assumptions),
        )

    def rank(option: Option) -> tuple[float, ...]:
        assert option.gpus_needed is not None
        usd = option.usd_per_day[1] if option.usd_per_day is not None else 0.0
        rate = option.token_hit_rate or 0.0
        return (option.gpus_needed[1], option.gpus_needed[0], usd, -round(rate, 3))

    best = min(sized, key=lambda option: (*rank(option), option.capacity_blocks or 0))
    assert best.gpus_needed is not None
    assert best.replicas_needed is not None
    cost = "" if best.usd_per_day is None else f", {_span(best.usd_per_day, ',.0f')} USD a day"
    reasons = [
        f"it meets a TTFT p95 of {target_s:g} s with {_span(best.gpus_needed, ',.0f')} GPUs"
        f"{cost}: the fewest of {len(sized)} options that were sized",
        f"token hit rate {_percent(best.token_hit_rate)} one after another" + _timed_rate(best),
    ]
    others = [option for option in sized if option is not best]
    if others:
        next_best = min(others, key=lambda option: (*rank(option), option.capacity_blocks or 0))
        assert next_best.gpus_needed is not None
        reasons.append(
            f"the next one, {next_best.label}, needs {_span(next_best.gpus_needed, ',.0f')} GPUs "
            f"at {_percent(next_best.token_hit_rate)}"
        )
    if best.safe_token_hit_rate is not None and best.token_hit_rate is not None:
        lost = best.token_hit_rate - best.safe_token_hit_rate
        if lost > 0.001:
            reasons.append(
                f"{_percent(lost)} of the tokens are hits that the complete identity forbids: the "
                "safe rate is what to count on"
            )
    return Recommendation(
        action=f"{best.label}: {_span(best.replicas_needed, ',.0f')} replicas, "
        f"{_span(best.gpus_needed, ',.0f')} GPUs",
        reasons=tuple(reasons),
        rests_on=(best.basis, "requests routed by least cost, as Dynamo's router", *assumptions),
    )


def _by_curve(
    curve: Sequence[CurvePoint],
    cliffs: Sequence[Cliff],
    here: tuple[int, float | None] | None,
    endless_hit_rate: float,
    assumptions: tuple[str, ...],
) -> Recommendation | None:
    points = [point for point in curve if point.capacity_blocks > 0]
    if not points or endless_hit_rate <= 0:
        return None

    def rate_at(capacity: float) -> float:
        reached = [point.token_hit_rate for point in points if point.capacity_blocks <= capacity]
        return max(reached, default=0.0)

    # From the large end down, or the flat foot of a cliff would pass for its top.
    chosen = points[-1]
    for point in reversed(points):
        gained = rate_at(2 * point.capacity_blocks) - point.token_hit_rate
        if endless_hit_rate - point.token_hit_rate > gained + _WORTH_DOUBLING:
            break
        if gained > _WORTH_DOUBLING:
            break
        chosen = point
    wanted = chosen.capacity_blocks
    reasons = [
        f"{_percent(chosen.token_hit_rate)} of the prompt tokens hit there, of "
        f"{_percent(endless_hit_rate)} in an endless pool; doubling it gains "
        f"{_percent(rate_at(2 * wanted) - chosen.token_hit_rate)}"
    ]
    for cliff in cliffs:
        if cliff.from_blocks < wanted < cliff.to_blocks * _ROOM_ABOVE_CLIFF:
            wanted = int(cliff.to_blocks * _ROOM_ABOVE_CLIFF)
            reasons.append(
                f"a tenth more than the top of the cliff at {cliff.to_blocks:,} blocks, below "
                f"which the rate falls to {_percent(cliff.hit_rate_below)}"
            )
    if here is None:
        action = f"give the pool {wanted:,} blocks"
    else:
        capacity_blocks, rate = here
        reasons.append(f"this pool of {capacity_blocks:,} blocks has {_percent(rate)}")
        if capacity_blocks < wanted:
            action = f"grow the pool from {capacity_blocks:,} to {wanted:,} blocks"
        elif capacity_blocks > 2 * wanted:
            action = (
                f"{wanted:,} blocks would do: the pool of {capacity_blocks:,} is larger than needed"
            )
        else:
            action = f"keep the pool of {capacity_blocks:,} blocks"
    return Recommendation(
        action=action,
        reasons=tuple(reasons),
        rests_on=(
            "one request after another: with decode beside it a pool hits less at the same size",
            *assumptions,
        ),
    )


def _timed_rate(option: Option) -> str:
    if option.timed is None:
        return ""
    lo, hi = option.timed.token_hit_rate
    return f", {_percent(lo)} to {_percent(hi)} in time"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _span(span: Range | tuple[int, int], form: str) -> str:
    lo, hi = (format(number, form) for number in span)
    return lo if lo == hi else f"{lo} to {hi}"
