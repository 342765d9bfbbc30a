"""Records don't say how many tokens were cached: null for it, no details, or no usage at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    usage = None if subject.reported is None else subject.reported.usage
    # Where nobody reports anything there is nothing that could be misread.
    if usage is None or not (usage.num_with_cached or usage.num_null_cached):
        return
    if params["of"] == "null" and usage.num_null_cached:
        reported, if_zero = usage.hit_rate_of_reported_only, usage.hit_rate_if_null_is_zero
        range_ = ""
        if usage.null_means == "unknown" and reported is not None and if_zero is not None:
            range_ = f"; the hit rate lies between {100 * if_zero:.2f} % and {100 * reported:.2f} %"
        meaning = "as zero" if usage.null_means == "zero" else "as zero or as not counted"
        yield Observation(
            subject="cached tokens of null",
            message=(
                f"{plural(usage.num_null_cached, 'request')} report null for their cached tokens, "
                f"to be read {meaning}: {usage.null_reason}{range_}"
            ),
            requests=usage.null_requests,
            facts={
                "null_means": usage.null_means,
                "hit_rate_if_null_is_zero": if_zero,
                "hit_rate_of_reported_only": reported,
            },
        )
    missing = usage.num_without_usage + usage.num_without_cached
    if params["of"] == "usage" and missing:
        yield Observation(
            subject="usage",
            message=(
                f"{missing:,} of {plural(usage.num_requests, 'request')} have no figure of cached "
                f"tokens ({usage.num_without_usage:,} no usage at all): they are left out of the "
                "reported hit rate, not counted as zero"
            ),
            requests=usage.missing_requests,
            facts={
                "num_without_usage": usage.num_without_usage,
                "num_without_cached": usage.num_without_cached,
            },
        )


SPEC = PredicateSpec(
    title="records don't say how many tokens were cached",
    scope="report",
    observe=_observe,
    parameters={
        "of": Parameter(
            about="null for cached tokens, or usage that is missing",
            kind="text",
            is_required=True,
            choices=("null", "usage"),
        )
    },
)
