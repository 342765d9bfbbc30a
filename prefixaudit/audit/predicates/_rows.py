"""What predicates that look at sharing have in common: bits of fields, evidence, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.audit import AuditLog, TierReplay
from prefixaudit.core.finding import SharedBy
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN

MAX_EVIDENCE: Final = 5
_BIT: Final = {name: 1 << place for place, name in enumerate(IDENTITY_FIELDS)}
_EMPTY_IS_NONE: Final = ("cache_salt", "extra_key")


def mask_of(fields: Iterable[str]) -> int:
    """Return the bits that Sharing's columns have for identity fields."""
    mask = 0
    for name in fields:
        mask |= _BIT[name]
    return mask


def fields_of(mask: int) -> tuple[str, ...]:
    """Return the identity fields of some bits, in the order of Identity."""
    return tuple(name for name, bit in _BIT.items() if mask & bit)


def by_identity(identities: Sequence[Identity], name: str) -> tuple[NDArray[np.bool_], ...]:
    """Return for each identity (bool): its field is known, and it is known to be absent."""
    values: list[Any] = [getattr(identity, name) for identity in identities]
    if name in _EMPTY_IS_NONE:
        values = [None if value == "" else value for value in values]
    known = np.array([value is not UNKNOWN for value in values], dtype=np.bool_)
    absent = np.array([value is None for value in values], dtype=np.bool_)
    return known, absent


def evidence_of(replay: TierReplay, rows: NDArray[np.intp], tokens: Any) -> tuple[SharedBy, ...]:
    """Return the first rows as pairs; `tokens` int64 [all rows] says how many each is about."""
    sharing, log, trace = replay.sharing, replay.log, replay.trace
    return tuple(
        pair(log, trace, int(sharing.reader[row]), int(sharing.donor[row]), int(tokens[row]))
        for row in rows[:MAX_EVIDENCE].tolist()
    )


def pair(log: AuditLog, trace: BlockTrace, reader: int, donor: int, num_tokens: int) -> SharedBy:
    """Return a reader and a donor (positions in the trace; -1: none) as evidence."""
    return SharedBy(
        reader=trace.request_ids[reader],
        donor=trace.request_ids[donor] if donor >= 0 else "",
        num_tokens=num_tokens,
        reader_source=log.source(reader),
        donor_source=log.source(donor) if donor >= 0 else "",
    )


def indices(trace: BlockTrace, readers: Iterable[int]) -> tuple[int, ...]:
    """Return the places in the log of requests, sorted, each once."""
    return tuple(sorted({int(trace.index[reader]) for reader in readers}))
