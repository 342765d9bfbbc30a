"""A request is served blocks that hold another image, audio or video than its own prompt.

A key without media takes equal placeholders for equal media. Blocks count from the first one whose
chain over tokens and media differs from the donor's; a donor that happens to carry the same media
is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prefixaudit.audit.predicates._rows import evidence_of, indices
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    for replay in subject.replays:
        if replay.tier.tier.kind == "router-index":
            continue
        sharing = replay.sharing
        rows = np.flatnonzero(sharing.num_wrong_media_tokens > 0)
        if not len(rows):
            continue
        readers = np.unique(sharing.reader[rows])
        total = int(sharing.num_wrong_media_tokens[rows].sum())
        pairs = evidence_of(replay, rows, sharing.num_wrong_media_tokens)
        yield Observation(
            subject=replay.tier.name,
            message=(
                f"{plural(len(readers), 'request')} got {total:,} tokens from blocks in "
                f"{replay.tier.name} that were computed for other media behind equal placeholders; "
                f"the first: {pairs[0].reader} <- {pairs[0].donor}"
            ),
            requests=indices(replay.trace, readers),
            num_tokens=total,
            evidence=pairs,
            facts={"tier": replay.tier.name, "tier_kind": replay.tier.tier.kind},
        )


SPEC = PredicateSpec(
    title="a request is served blocks computed for other media",
    scope="lookup",
    observe=_observe,
)
