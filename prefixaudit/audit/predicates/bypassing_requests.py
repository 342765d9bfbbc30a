"""Many requests don't read the cache, because of what they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prefixaudit.audit.predicates._rows import indices
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    figures = subject.figures
    if figures is None or not figures.num_requests:
        return
    share = figures.num_bypassing / figures.num_requests
    if not figures.num_bypassing or share < params["min_share"]:
        return
    trace = subject.replays[0].trace
    positions = np.flatnonzero(~trace.reads_cache)
    num_tokens = int(trace.num_prompt_tokens[positions].sum())
    yield Observation(
        subject="requests that look nothing up",
        message=(
            f"{figures.num_bypassing:,} of {figures.num_requests:,} requests don't read the cache: "
            f"their {num_tokens:,} prompt tokens were all computed"
        ),
        requests=indices(trace, positions.tolist()),
        num_tokens=num_tokens,
        facts={"share": share},
    )


SPEC = PredicateSpec(
    title="many requests look nothing up",
    scope="report",
    observe=_observe,
    parameters={
        "min_share": Parameter(
            about="share of the requests, 0..1, from which on it is a finding",
            kind="number",
            is_required=True,
        )
    },
)
