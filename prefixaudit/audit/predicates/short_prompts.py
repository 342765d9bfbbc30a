"""Many prompts have no full block, so that nothing of them is ever stored under a hash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    figures = subject.figures
    if figures is None or not figures.num_requests:
        return
    share = figures.num_short_prompts / figures.num_requests
    if share >= params["min_share"]:
        yield Observation(
            subject=f"blocks of {figures.block_size} tokens",
            message=(
                f"{figures.num_short_prompts:,} of {figures.num_requests:,} prompts have no full "
                f"block of {figures.block_size:,} tokens; the longest prompt has "
                f"{figures.longest_prompt_tokens:,}"
            ),
            facts={"share": share, "block_size": figures.block_size},
        )


SPEC = PredicateSpec(
    title="many prompts are shorter than a block",
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
