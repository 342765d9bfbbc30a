"""False hits: what each field that a key lacks lets through, and the fewest fields that close it.

A stretch that a reader got from a donor of another identity is let through by each field in which
the two differ. A set of fields closes the gap when every such stretch has one of them, or one that
differs with them (the revision of another adapter); but a key with more fields finds other donors,
so the log is replayed under it until nothing is let through.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.sharing import FIELD_BIT, fields_apart
from prefixaudit.core.audit import Sharing
from prefixaudit.core.engine import MEDIA
from prefixaudit.core.identity import CONTENT_FIELDS
from prefixaudit.core.report import FieldGap
from prefixaudit.core.trace import BlockTrace

_MEDIA_BIT: Final = 1 << 31
_BITS: Final = {**FIELD_BIT, MEDIA: _MEDIA_BIT}
_CONTENT: Final = sum(FIELD_BIT[name] for name in CONTENT_FIELDS)
# Of two sets of equal size the one that an engine can key is better: a salt rather than a tenant.
_PREFERENCE: Final = (
    *CONTENT_FIELDS,
    MEDIA,
    "cache_salt",
    "extra_key",
    "trust_domain",
    "tenant",
    "user",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGaps:
    """What a key lets through: by field, in all, and the fewest fields that close it."""

    fields: tuple[FieldGap, ...]
    num_requests: int
    num_tokens: int
    smallest: tuple[str, ...]


def unsafe_masks(sharing: Sharing) -> NDArray[np.uint32]:
    """Return for each row the bits of what makes it unsafe; 0 where it isn't.

    Isolation counts outside of public prefixes; the highest bit stands for media.
    """
    private = sharing.num_private_tokens > 0
    masks = np.where(private, sharing.differing, sharing.differing & np.uint32(_CONTENT))
    wrong = np.where(sharing.num_wrong_media_tokens > 0, np.uint32(_MEDIA_BIT), np.uint32(0))
    result: NDArray[np.uint32] = (masks | wrong).astype(np.uint32)
    return result


def unsafe_tokens(sharing: Sharing, masks: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return for each row (int64) the tokens that are wrong or seen by others."""
    tokens = np.where(masks & np.uint32(_CONTENT), sharing.num_tokens, sharing.num_private_tokens)
    only_media = masks == np.uint32(_MEDIA_BIT)
    tokens = np.where(only_media, sharing.num_wrong_media_tokens, tokens)
    result: NDArray[np.int64] = np.where(masks != 0, tokens, 0).astype(np.int64)
    return result


def key_gaps(
    trace: BlockTrace, sharing: Sharing, replay_with: Callable[[tuple[str, ...]], Sharing]
) -> KeyGaps:
    """Return what a tier lets through. `replay_with` replays it with fields added to its key.

    `trace` has the requests' identities.
    """
    masks = unsafe_masks(sharing)
    tokens = unsafe_tokens(sharing, masks)
    unsafe = masks != 0
    return KeyGaps(
        fields=tuple(_gaps(sharing, masks)),
        num_requests=len(np.unique(sharing.reader[unsafe])),
        num_tokens=int(tokens.sum()),
        smallest=_smallest(trace, sharing, replay_with) if unsafe.any() else (),
    )


def _gaps(sharing: Sharing, masks: NDArray[np.uint32]) -> Iterable[FieldGap]:
    for name, bit in _BITS.items():
        rows = (masks & np.uint32(bit)) != 0
        if not rows.any():
            continue
        if bit == _MEDIA_BIT:
            tokens = sharing.num_wrong_media_tokens[rows]
        elif bit & _CONTENT:
            tokens = sharing.num_tokens[rows]
        else:
            tokens = sharing.num_private_tokens[rows]
        readers = sharing.reader[rows].astype(np.int64)
        pairs = readers << 32 | sharing.donor[rows].astype(np.int64)
        yield FieldGap(
            field=name,
            num_requests=len(np.unique(readers)),
            num_tokens=int(tokens.sum()),
            num_pairs=len(np.unique(pairs)),
        )


def _smallest(
    trace: BlockTrace, sharing: Sharing, replay_with: Callable[[tuple[str, ...]], Sharing]
) -> tuple[str, ...]:
    needed = _closing_masks(trace, sharing)
    while True:
        fields = smallest_hitting_set(needed)
        more = _closing_masks(trace, replay_with(fields))
        # A mask that a chosen field hits can't come back: that field is in the key now.
        if more <= needed:
            return fields
        needed |= more


def _closing_masks(trace: BlockTrace, sharing: Sharing) -> set[int]:
    """Return the distinct masks of fields of which one has to be added, of all unsafe rows."""
    unsafe = unsafe_masks(sharing)
    closing = fields_apart(trace, sharing) | (unsafe & np.uint32(_MEDIA_BIT))
    return {int(mask) for mask in np.unique(closing[unsafe != 0])}


def smallest_hitting_set(masks: Iterable[int]) -> tuple[str, ...]:
    """Return the fewest fields such that each mask (bits of fields, not 0) has one of them."""
    # A mask that holds all of another one is hit where that one is.
    wanted = sorted(set(masks), key=int.bit_count)
    least: list[int] = []
    for mask in wanted:
        if not any(smaller & mask == smaller for smaller in least):
            least.append(mask)
    names: Sequence[str] = [
        name for name in _PREFERENCE if any(mask & _BITS[name] for mask in least)
    ]
    for size in range(len(names) + 1):
        for chosen in itertools.combinations(names, size):
            bits = sum(_BITS[name] for name in chosen)
            if all(mask & bits for mask in least):
                return chosen
    raise AssertionError("all fields together hit every mask")
