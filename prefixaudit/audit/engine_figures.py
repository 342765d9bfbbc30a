"""From readings of an engine's own figures to its hit rates, told apart by what they cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from prefixaudit.core.reading import EngineReading
from prefixaudit.core.reported import EngineFigures
from prefixaudit.core.unknown import UNKNOWN, Known

Number = TypeVar("Number", int, float)


def engine_figures(readings: Iterable[EngineReading]) -> tuple[EngineFigures, ...]:
    """Return the figures of each server that readings name, in order of appearance."""
    by_server: dict[tuple[str, object, object], list[EngineReading]] = {}
    for reading in readings:
        key = (reading.source.path, reading.engine, reading.server)
        by_server.setdefault(key, []).append(reading)
    return tuple(_figures(own) for own in by_server.values())


def _figures(readings: Sequence[EngineReading]) -> EngineFigures:
    first = readings[0]
    recent = [
        reading.hit_rate
        for reading in readings
        if reading.hit_rate_scope == "recent-requests" and isinstance(reading.hit_rate, float | int)
    ]
    since_start = [
        reading.hit_rate
        for reading in readings
        if reading.hit_rate_scope == "since-start" and isinstance(reading.hit_rate, float | int)
    ]
    counters = [
        (reading.num_hit_tokens, reading.num_queried_tokens)
        for reading in readings
        if isinstance(reading.num_hit_tokens, int) and isinstance(reading.num_queried_tokens, int)
    ]
    queried = _numbers(reading.num_queried_tokens for reading in readings)
    prompts = _numbers(reading.num_prompt_tokens for reading in readings)
    from_counters = _rate(*counters[-1]) if counters else None
    return EngineFigures(
        source=first.source.path,
        engine=_text(first.engine),
        server=_text(first.server),
        num_readings=len(readings),
        since_start=from_counters
        if from_counters is not None
        else (since_start[-1] if since_start else None),
        recent=recent[-1] if recent else None,
        highest_recent=max(recent) if recent else None,
        this_run=_this_run(readings, counters),
        num_queried_tokens=queried[-1] if queried else None,
        num_prompt_tokens=prompts[-1] if prompts else None,
        num_preemptions=max(_numbers(r.num_preemptions for r in readings), default=None),
        highest_kv_usage=max(_numbers(r.kv_usage for r in readings), default=None),
        most_waiting=max(_numbers(r.num_waiting for r in readings), default=None),
    )


def _this_run(
    readings: Sequence[EngineReading], counters: Sequence[tuple[int, int]]
) -> float | None:
    """Return the rate between the first reading and the last.

    A counter that falls was started anew: from there on it counts from zero.
    """
    summed = [
        (reading.num_cached_tokens, reading.num_computed_tokens)
        for reading in readings
        if isinstance(reading.num_cached_tokens, int)
        and isinstance(reading.num_computed_tokens, int)
    ]
    if summed:  # SGLang's batches, summed over the log
        cached, computed = summed[-1]
        return _rate(cached, cached + computed)
    if len(counters) < 2:
        return None
    hits = queries = 0
    for (hits_before, queries_before), (hits_after, queries_after) in pairwise(counters):
        restarted = queries_after < queries_before or hits_after < hits_before
        hits += hits_after - (0 if restarted else hits_before)
        queries += queries_after - (0 if restarted else queries_before)
    return _rate(hits, queries)


def _rate(hits: int, queries: int) -> float | None:
    return hits / queries if queries > 0 else None


def _numbers(values: Iterable[Known[Number]]) -> list[Number]:
    return [value for value in values if value is not None and value is not UNKNOWN]


def _text(value: Known[str]) -> str | None:
    return value if isinstance(value, str) else None
