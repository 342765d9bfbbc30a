"""What servers reported, as lines of the text report and as values of the JSON one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from prefixaudit.core.reported import CachedGap, EngineFigures, ReportedFacts, ReportedUsage
from prefixaudit.printable import printable
from prefixaudit.wording import percent, plural


def reported_lines(facts: ReportedFacts) -> Iterator[tuple[int, str]]:
    """Yield the section REPORTED as (indent of what follows, text); its first line is the head."""
    trust = facts.trust
    yield 0, "by the servers, beside the replay"
    if trust is not None and not trust.is_trusted:
        yield (
            4,
            (
                f"  the replay isn't trusted: {trust.reason}. The figures here hold; those of the "
                "replay are of other prompts than the server's"
            ),
        )
    yield from _usage(facts.usage)
    for gap in facts.gaps:
        yield 6, f"    {_gap(gap)}"
    for engine in facts.engines:
        yield 4, f"  {_engine(engine)}"
    if facts.engines and facts.replayed_endless_hit_rate is not None:
        yield (
            4,
            (
                "  replayed, an endless pool: "
                f"{percent(facts.replayed_endless_hit_rate)} of the prompt tokens"
            ),
        )
    if facts.num_repeated_ids:
        yield (
            4,
            (
                f"  {facts.num_repeated_ids:,} requests carry an id that an earlier one has: each "
                "is counted, as a request of its own"
            ),
        )


def _usage(usage: ReportedUsage) -> Iterator[tuple[int, str]]:
    num_known = usage.num_with_cached + usage.num_null_cached
    if num_known:
        rate = percent(usage.hit_rate)
        if usage.hit_rate is None:
            low, high = usage.hit_rate_if_null_is_zero, usage.hit_rate_of_reported_only
            rate = "not known" if low is None else f"{percent(low)[:-2]}-{percent(high)}"
        line = (
            f"  {'token hit rate':<30}{rate:>15}    {usage.cached_tokens:,} of "
            f"{usage.prompt_tokens:,} tokens, {plural(num_known, 'request')}"
        )
        yield 49, line
    if usage.num_null_cached:
        meaning = "zero" if usage.null_means == "zero" else "zero or not counted"
        yield (
            4,
            f"  null for {plural(usage.num_null_cached, 'request')} is {meaning}: "
            f"{usage.null_reason}",
        )
    missing = usage.num_without_usage + usage.num_without_cached
    if missing and num_known:
        yield (
            4,
            (
                f"  {missing:,} of {plural(usage.num_requests, 'request')} say nothing of cached "
                f"tokens ({usage.num_without_usage:,} have no usage): left out, not zero"
            ),
        )


def _gap(gap: CachedGap) -> str:
    than = "more" if gap.is_more else "fewer"
    return (
        f"{plural(gap.num_requests, 'request')}, {gap.num_tokens:,} tokens {than} than replayed: "
        f"{gap.about}"
    )


def _engine(engine: EngineFigures) -> str:
    name = "engine" if engine.server is None else printable(engine.server)
    if "=" not in name and engine.server is not None:  # a number, not the labels of a metric
        name = f"engine {name}"
    rates = [
        f"{about} {percent(rate)}"
        for about, rate in (
            ("since its start", engine.since_start),
            ("its last requests", engine.recent),
            ("between its readings", engine.this_run),
        )
        if rate is not None
    ]
    more = []
    if engine.counts_twice:
        more.append(
            f"{engine.num_queried_tokens:,} tokens looked up for {engine.num_prompt_tokens:,} "
            "prompt tokens: lookups count more than once"
        )
    if engine.shows_preemption:
        more.append("requests were preempted, or waited for a full pool")
    said = ", ".join(rates) or "no hit rate"
    source = printable(PurePath(engine.source).name)
    return f"{name} ({source}) hit rate: {said}" + "".join(f"; {text}" for text in more)


def reported_values(facts: ReportedFacts | None) -> dict[str, Any]:
    """Return the facts as plain values, all None without any."""
    if facts is None:
        names = (
            "usage", "trust", "gaps", "beyond_identity", "engines", "num_repeated_ids",
            "replayed_endless_hit_rate", "counts_preempted_work",
        )  # fmt: skip
        return dict.fromkeys(names)
    values = asdict(facts)
    for name in ("null_requests", "missing_requests"):  # in the findings, where they matter
        del values["usage"][name]
    values["engines"] = [
        {
            **asdict(engine),
            "counts_twice": engine.counts_twice,
            "shows_preemption": engine.shows_preemption,
        }
        for engine in facts.engines
    ]
    return values
