"""Replayed prompts aren't as long as the server counted them, so that no figure of theirs holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    trust = None if subject.reported is None else subject.reported.trust
    if trust is not None and not trust.is_trusted:
        yield Observation(
            subject="prompt lengths",
            message=f"{trust.reason}; only reported figures hold",
            facts={
                "num_compared": trust.num_compared,
                "num_equal": trust.num_equal,
                "difference": trust.difference,
            },
        )


SPEC = PredicateSpec(
    title="replayed prompts differ in length from the server's", scope="report", observe=_observe
)
