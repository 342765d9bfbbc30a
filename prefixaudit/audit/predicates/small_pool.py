"""The pool is smaller than what the log reuses, and hits are lost for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    figures = subject.figures
    if figures is None or figures.capacity_blocks is None:
        return  # an endless pool, or one whose size isn't known
    lost = figures.num_endless_cached_tokens - figures.num_cached_tokens
    if lost <= 0 or lost < params["min_lost_share"] * figures.num_endless_cached_tokens:
        return
    share = lost / figures.num_endless_cached_tokens
    yield Observation(
        subject="the pool's size",
        message=(
            f"a pool of {figures.capacity_blocks:,} blocks loses {lost:,} of "
            f"{figures.num_endless_cached_tokens:,} tokens that an endless one would hit "
            f"({share:.0%}); all of them take {figures.working_set_blocks:,} blocks"
        ),
        num_tokens=lost,
        facts={
            "capacity_blocks": figures.capacity_blocks,
            "working_set_blocks": figures.working_set_blocks,
            "lost_share": share,
        },
    )


SPEC = PredicateSpec(
    title="the pool is smaller than the working set",
    scope="report",
    observe=_observe,
    parameters={
        "min_lost_share": Parameter(
            about="lost tokens / tokens that an endless pool would hit, 0..1, from which on it is "
            "a finding",
            kind="number",
            is_required=True,
        )
    },
)
