"""Two requests have one key although they differ in a field that the key holds.

The key writes several fields so that one can take another's place: a salt that equals an adapter's
name, a salt and an extra key that are the same text once they are joined. Found in the replay:
blocks were shared under such a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from prefixaudit.audit.predicates._rows import evidence_of, fields_of, indices, mask_of
from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Observation
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.wording import plural


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    for replay in subject.replays:
        tier, sharing = replay.tier, replay.sharing
        if tier.tier.kind == "router-index":
            continue
        wanted = params.get("fields", IDENTITY_FIELDS)
        ambiguous = {name for entry in tier.tier.ambiguities for name in entry.fields}
        mask = np.uint32(mask_of(ambiguous & set(tier.tier.key_fields) & set(wanted)))
        rows = np.flatnonzero((sharing.differing & mask) != 0)
        if not len(rows):
            continue
        readers = np.unique(sharing.reader[rows])
        fields = fields_of(int(np.bitwise_or.reduce(sharing.differing[rows]) & mask))
        total = int(sharing.num_tokens[rows].sum())
        pairs = evidence_of(replay, rows, sharing.num_tokens)
        how = "; ".join(a.how for a in tier.tier.ambiguities if set(a.fields) & set(fields))
        yield Observation(
            subject=tier.name,
            message=(
                f"{plural(len(readers), 'request')} got {total:,} tokens in {tier.name} under a "
                f"key that another {' and '.join(fields)} spells too ({how}); the first: "
                f"{pairs[0].reader} <- {pairs[0].donor}"
            ),
            requests=indices(replay.trace, readers),
            num_tokens=total,
            evidence=pairs,
            facts={"tier": tier.name, "fields": list(fields)},
        )


SPEC = PredicateSpec(
    title="two identities have one key, since a field can spell another one",
    scope="lookup",
    observe=_observe,
    parameters={
        "fields": Parameter(
            about="fields of the key of which one differs; by default any",
            kind="texts",
            choices=IDENTITY_FIELDS,
        )
    },
)
