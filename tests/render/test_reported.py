"""What servers reported, as text and JSON: told apart, escaped, and first where it alone holds."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

from prefixaudit.core.report import RenderOptions
from prefixaudit.core.reported import (
    CachedGap,
    EngineFigures,
    ReplayTrust,
    ReportedFacts,
    ReportedUsage,
)
from prefixaudit.render import RENDERERS
from tests.render.reports import HOSTILE, standard_report

USAGE = ReportedUsage(
    num_requests=6,
    num_without_usage=1,
    num_with_cached=3,
    num_null_cached=2,
    num_without_cached=0,
    prompt_tokens=390,
    cached_tokens=240,
    completion_tokens=10,
    null_means="unknown",
    null_reason="which version wrote it isn't known",
    hit_rate=None,
    hit_rate_if_null_is_zero=240 / 390,
    hit_rate_of_reported_only=240 / 270,
    null_requests=(1, 3),
    missing_requests=(5,),
)
ENGINE = EngineFigures(
    source=HOSTILE,
    engine="vllm",
    server=HOSTILE,
    num_readings=9,
    since_start=0.25,
    recent=0.5,
    highest_recent=0.5,
    this_run=0.125,
    num_queried_tokens=1500,
    num_prompt_tokens=1000,
    num_preemptions=3,
    highest_kv_usage=1.0,
    most_waiting=2,
)
FACTS = ReportedFacts(
    usage=USAGE,
    trust=ReplayTrust(num_compared=6, num_equal=6, difference=None, is_trusted=True, reason=""),
    gaps=(
        CachedGap(
            kind="evicted", is_more=False, about="evicted", num_requests=2, num_tokens=64,
            requests=(1, 2),
        ),
    ),
    beyond_identity=None,
    engines=(ENGINE,),
    num_repeated_ids=4,
    replayed_endless_hit_rate=0.3,
    counts_preempted_work=True,
)  # fmt: skip


def text(facts: ReportedFacts) -> str:
    return RENDERERS["text"].render(standard_report(reported=facts), RenderOptions())


def test_three_rates_of_an_engine_and_a_range_are_told_apart() -> None:
    flat = " ".join(text(FACTS).split())

    assert "token hit rate 61.54-88.89 %" in flat
    assert (
        "since its start 25.00 %, its last requests 50.00 %, between its readings 12.50 %" in flat
    )
    assert "1,500 tokens looked up for 1,000 prompt tokens: lookups count more than once" in flat
    assert "2 requests, 64 tokens fewer than replayed: evicted" in flat
    assert "1 of 6 requests say nothing of cached tokens" in flat


def test_names_from_outside_are_escaped_and_lines_fit() -> None:
    shown = text(FACTS)

    assert all(len(line) <= 100 for line in shown.splitlines())
    assert not any(
        unicodedata.category(letter) in ("Cc", "Cf") for letter in shown if letter != "\n"
    )


def test_reported_figures_come_first_where_the_replay_is_not_trusted() -> None:
    trust = ReplayTrust(
        num_compared=6, num_equal=0, difference=1, is_trusted=False, reason="6 of 6 are longer"
    )

    assert text(FACTS).index("REUSE") < text(FACTS).index("REPORTED")
    shown = text(replace(FACTS, trust=trust))
    assert shown.index("REPORTED") < shown.index("REUSE")
    assert "the replay isn't trusted: 6 of 6 are longer" in " ".join(shown.split())


def test_json_has_the_same() -> None:
    report = standard_report(reported=FACTS)

    reported = json.loads(RENDERERS["json"].render(report, RenderOptions()))["reported"]

    assert reported["usage"]["hit_rate"] is None
    assert reported["usage"]["null_means"] == "unknown"
    assert reported["engines"][0]["counts_twice"] is True
    assert reported["engines"][0]["shows_preemption"] is True
    assert reported["gaps"][0]["kind"] == "evicted"
