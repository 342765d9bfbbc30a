"""Servers report cached tokens that, in this log, only requests of another identity had stored.

Evidence from the server itself: what the replay of the complete identity allows is less. Requests
before the log's start may have stored the same tokens under the right identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    reported = subject.reported
    beyond = None if reported is None else reported.beyond_identity
    if beyond is None:
        return
    first = beyond.pairs[0]
    place = f" (the first at {first.reader_source})" if first.reader_source else ""
    yield Observation(
        subject=", ".join(beyond.fields),
        message=(
            f"the server reported {beyond.num_tokens:,} cached tokens for "
            f"{plural(len(beyond.requests), 'request')}{place} that only requests of another "
            f"{', '.join(beyond.fields)} had stored in this log"
        ),
        requests=beyond.requests,
        num_tokens=beyond.num_tokens,
        evidence=beyond.pairs,
        facts={"fields": beyond.fields},
    )


SPEC = PredicateSpec(
    title="servers report more cached tokens than the complete identity allows",
    scope="report",
    observe=_observe,
)
