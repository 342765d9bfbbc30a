"""An engine's own hit rate is no reuse between requests: higher than what even an endless pool
would reuse of this log, or from counters that look tokens up more often than prompts have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.reported import EngineFigures, ReportedFacts
from prefixaudit.core.rule import Parameter, PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    reported = subject.reported
    if reported is None:
        return
    for engine in reported.engines:
        if params["by"] == "counters" and engine.counts_twice:
            yield Observation(
                subject=_name(engine),
                message=(
                    f"{_name(engine)}: {engine.num_queried_tokens:,} tokens were looked up for "
                    f"{engine.num_prompt_tokens:,} prompt tokens: lookups are counted more than "
                    "once, so hits divided by queries is no share of the prompts"
                ),
                facts={
                    "num_queried_tokens": engine.num_queried_tokens,
                    "num_prompt_tokens": engine.num_prompt_tokens,
                },
            )
        if params["by"] == "replay":
            yield from _above_replay(reported, engine, params.get("min_difference", 0.05))


def _above_replay(
    reported: ReportedFacts, engine: EngineFigures, min_difference: float
) -> Iterator[Observation]:
    most = reported.replayed_endless_hit_rate
    is_recomputation = engine.shows_preemption and reported.counts_preempted_work is not False
    rates = {"of its last requests": engine.recent, "between its readings": engine.this_run}
    if is_recomputation:  # else the time before the log explains what it likes
        rates["since its start"] = engine.since_start
    known = {about: rate for about, rate in rates.items() if rate is not None}
    if most is None or not known:
        return
    about, rate = max(known.items(), key=lambda item: item[1])
    if rate < most + min_difference:
        return
    reason = "the server may have had other requests, or blocks from before this log"
    if is_recomputation:
        versions = "" if reported.counts_preempted_work else ", if it is older than 0.11.1"
        reason = (
            f"requests were preempted or waited for a full pool, and vLLM{versions} counts blocks "
            "that a preempted request finds again: recomputation, not reuse"
        )
    yield Observation(
        subject=_name(engine),
        message=(
            f"{_name(engine)} gives a hit rate {about} of {100 * rate:.1f} %, while an endless "
            f"pool would reuse {100 * most:.1f} % of this log's prompts: {reason}"
        ),
        verdict="found" if is_recomputation else "inconclusive",
        facts={
            "rate": rate,
            "replayed_endless_hit_rate": most,
            "shows_preemption": engine.shows_preemption,
        },
    )


def _name(engine: EngineFigures) -> str:
    if engine.server is None:
        return "the engine"
    return engine.server if "=" in engine.server else f"engine {engine.server}"


SPEC = PredicateSpec(
    title="an engine's own hit rate isn't reuse between requests",
    scope="report",
    observe=_observe,
    parameters={
        "by": Parameter(
            about="counters above the prompt tokens, or the replay of the log",
            kind="text",
            is_required=True,
            choices=("counters", "replay"),
        ),
        "min_difference": Parameter(
            about="points (0..1) above the replay from which on it is a finding", kind="number"
        ),
    },
)
