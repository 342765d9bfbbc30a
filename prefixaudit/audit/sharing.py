"""Who was served whose blocks, and in which identity fields the two differ.

Everything is columns: a row is a stretch of a reader's prompt that one donor stored. Fields are
compared as numbers, so that millions of rows cost a few passes over arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.audit.identities import ABSENT_CODE, UNKNOWN_CODE, table_of
from prefixaudit.core.audit import Sharing
from prefixaudit.core.identity import CONTENT_FIELDS, IDENTITY_FIELDS
from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int64Array

FIELD_BIT: Final = {name: 1 << place for place, name in enumerate(IDENTITY_FIELDS)}
_ADAPTER: Final = ("lora_name", "lora_revision", "lora_path")
_OWNER: Final = ("tenant", "trust_domain")
# Compared field by field; `user` separates nobody unless a policy says so.
_PLAIN: Final = tuple(
    name
    for name in (*CONTENT_FIELDS, "cache_salt", "extra_key")
    if name not in (*_ADAPTER, *_OWNER)
)


def mask_of(fields: Iterable[str]) -> int:
    """Return the bits of identity fields."""
    mask = 0
    for name in fields:
        mask |= FIELD_BIT[name]
    return mask


def fields_of(mask: int) -> tuple[str, ...]:
    """Return the identity fields of the bits, in the order of Identity."""
    return tuple(name for name, bit in FIELD_BIT.items() if mask & bit)


def rows_of(lookups: Lookups) -> tuple[Int64Array, Int64Array]:
    """Return each donor row's reader and its first token in the reader's prompt (int64 each)."""
    counts = np.diff(lookups.donor_offsets)
    readers = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    ends = np.cumsum(lookups.donor_num_tokens)
    starts = ends - lookups.donor_num_tokens
    before = np.concatenate([[0], ends])[lookups.donor_offsets[:-1]]
    return readers, starts - np.repeat(before, counts)


def sharing_of(
    trace: BlockTrace,
    lookups: Lookups,
    *,
    public_tokens: Int64Array,
    constant_fields: frozenset[str],
    is_same_process: NDArray[np.bool_],
    key_fields: frozenset[str],
    media_trace: BlockTrace | None,
) -> Sharing:
    """Compare every reader with its donors.

    public_tokens    int64 [requests]
    constant_fields  fields that can't differ within one process
    is_same_process  bool [rows]: reader and donor were served by one process
    key_fields       fields in the tier's key: equal keys then mean equal values, known or not
    media_trace      the same log with media in the chain, where the key has none; else None
    """
    readers, starts = rows_of(lookups)
    donors = lookups.donors.astype(np.int64)
    tokens = lookups.donor_num_tokens
    of_reader, of_donor = trace.identity[readers], trace.identity[donors]
    differing = np.zeros(len(readers), dtype=np.uint32)
    unknown = np.zeros(len(readers), dtype=np.uint32)

    def compare(name: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return where the values are known on both sides, and where they are the same."""
        codes = table_of(trace.identities).codes(name)
        reader, donor = codes[of_reader], codes[of_donor]
        return (reader != UNKNOWN_CODE) & (donor != UNKNOWN_CODE), reader == donor

    def mark(column: NDArray[np.uint32], where: NDArray[np.bool_], name: str) -> None:
        column[where] |= np.uint32(FIELD_BIT[name])

    def could_differ(name: str, is_known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if name in key_fields:
            return np.zeros(len(readers), dtype=np.bool_)
        return ~is_known & ~(is_same_process & (name in constant_fields))

    for name in _PLAIN:
        is_known, is_equal = compare(name)
        mark(differing, is_known & ~is_equal, name)
        mark(unknown, could_differ(name, is_known), name)

    # An adapter: its name decides, then its revision, then its path. Without one there is neither.
    name_known, name_equal = compare("lora_name")
    revision_known, revision_equal = compare("lora_revision")
    path_known, path_equal = compare("lora_path")
    names = table_of(trace.identities).codes("lora_name")
    has_adapter = (names[of_reader] != ABSENT_CODE) | (names[of_donor] != ABSENT_CODE)
    mark(differing, name_known & ~name_equal, "lora_name")
    mark(unknown, could_differ("lora_name", name_known), "lora_name")
    same_adapter = has_adapter & ~(name_known & ~name_equal)
    if "lora_name" not in key_fields:
        same_adapter &= name_known
    mark(differing, same_adapter & revision_known & ~revision_equal, "lora_revision")
    undecided = same_adapter & ~revision_known
    mark(differing, undecided & path_known & ~path_equal, "lora_path")
    undecided &= ~(path_known & ~path_equal)
    mark(unknown, undecided & could_differ("lora_revision", revision_known), "lora_revision")

    # The owner: trust domains where both are known, else tenants.
    domains = table_of(trace.identities).codes("trust_domain")
    domain_known = (domains[of_reader] > ABSENT_CODE) & (domains[of_donor] > ABSENT_CODE)
    domain_equal = domains[of_reader] == domains[of_donor]
    tenant_known, tenant_equal = compare("tenant")
    mark(differing, domain_known & ~domain_equal, "trust_domain")
    by_tenant = ~domain_known
    mark(differing, by_tenant & tenant_known & ~tenant_equal, "tenant")
    mark(unknown, by_tenant & ~tenant_known & could_differ("tenant", tenant_known), "tenant")

    ends = starts + tokens
    private = np.maximum(0, ends - np.maximum(starts, public_tokens[readers]))
    wrong_media = np.zeros(len(readers), dtype=np.int64)
    if media_trace is not None:
        common = common_blocks(media_trace, readers, donors) * media_trace.block_size
        wrong_media = np.maximum(0, ends - np.maximum(starts, common))
    return Sharing(
        reader=readers.astype(np.int32),
        donor=lookups.donors,
        start_token=starts,
        num_tokens=tokens,
        num_private_tokens=private,
        differing=differing,
        unknown=unknown,
        num_wrong_media_tokens=wrong_media,
    )


def fields_apart(trace: BlockTrace, sharing: Sharing) -> NDArray[np.uint32]:
    """Return for each row (uint32) the bits of the fields that would keep reader and donor apart.

    Those are the fields that differ, known or not; `user` is none of them.
    """
    of_reader, of_donor = trace.identity[sharing.reader], trace.identity[sharing.donor]
    masks = np.zeros(len(sharing.reader), dtype=np.uint32)
    for name in (*_PLAIN, *_ADAPTER, *_OWNER):
        codes = table_of(trace.identities).codes(name)
        masks[codes[of_reader] != codes[of_donor]] |= np.uint32(FIELD_BIT[name])
    return masks


def common_blocks(trace: BlockTrace, left: Int64Array, right: Int64Array) -> Int64Array:
    """Return how many leading blocks two requests have in common (int64, by pairs of positions)."""
    tree = trace.tree
    parent = np.append(tree.parent.astype(np.int64), -1)
    depth = np.append(tree.depth_blocks.astype(np.int64), -1)
    end = np.append((tree.depth_blocks + tree.num_blocks).astype(np.int64), 0)
    a, b = trace.node[left].astype(np.int64), trace.node[right].astype(np.int64)
    apart = np.flatnonzero(a != b)
    while len(apart):
        deeper_a = depth[a[apart]] >= depth[b[apart]]
        deeper_b = depth[b[apart]] >= depth[a[apart]]
        up_a, up_b = apart[deeper_a], apart[deeper_b]
        a[up_a], b[up_b] = parent[a[up_a]], parent[b[up_b]]
        apart = apart[a[apart] != b[apart]]
    return end[a]
