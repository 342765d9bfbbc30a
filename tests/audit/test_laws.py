"""Laws of the audit, on small random logs, some against a plain quadratic simulation."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.audit.false_hits import (
    key_gaps,
    smallest_hitting_set,
    unsafe_masks,
    unsafe_tokens,
)
from prefixaudit.audit.sharing import FIELD_BIT, common_blocks, rows_of
from prefixaudit.audit.tiers import replay_tier, sharing_with
from prefixaudit.core.audit import TierReplay
from prefixaudit.core.identity import Identity
from tests.audit.logs import (
    BLOCK_SIZE,
    KEYED,
    SERVERS,
    SmallRequest,
    audit_log,
    small_logs,
    store,
)

_FAST = settings(max_examples=60, deadline=None)
fields_in_key = st.lists(st.sampled_from(KEYED), unique=True, max_size=3)


def _plain_replay(
    log: list[SmallRequest], fields: list[str], first_block: list[str]
) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Endless pool, block by block: hit tokens, and (donor, tokens) of each request."""
    stored: dict[tuple[object, ...], int] = {}
    hits: list[int] = []
    donors: list[list[tuple[int, int]]] = []
    for index, request in enumerate(log):
        tokens = request.tokens
        num_blocks = len(tokens) // BLOCK_SIZE
        keys: list[tuple[object, ...]] = []
        for block in range(num_blocks):
            # The first block's key is inherited by the chain, so all blocks hold its fields.
            key: tuple[object, ...] = (tokens[: (block + 1) * BLOCK_SIZE],)
            keys.append((*key, *(getattr(request.identity, f) for f in (*fields, *first_block))))
        limit = (len(tokens) - 1) // BLOCK_SIZE
        hit = 0
        found: list[tuple[int, int]] = []
        while hit < limit and keys[hit] in stored:
            donor = stored[keys[hit]]
            if found and found[-1][0] == donor:
                found[-1] = (donor, found[-1][1] + BLOCK_SIZE)
            else:
                found.append((donor, BLOCK_SIZE))
            hit += 1
        for key in keys[hit:]:
            stored[key] = index
        hits.append(hit * BLOCK_SIZE)
        donors.append(found)
    return hits, donors


def _replay(log: list[SmallRequest], fields: list[str], **options: object) -> TierReplay:
    return replay_tier(audit_log(log), SERVERS, store(fields, **options))  # type: ignore[arg-type]


@given(small_logs(), fields_in_key, fields_in_key)
@_FAST
def test_hits_and_donors_equal_a_plain_simulation_of_the_key(
    log: list[SmallRequest], fields: list[str], first_block: list[str]
) -> None:
    replay = _replay(log, fields, first_block=first_block)

    hits, donors = _plain_replay(log, fields, first_block)
    lookups = replay.lookups
    assert lookups.num_cached_tokens.tolist() == hits
    for index, expected in enumerate(donors):
        part = slice(lookups.donor_offsets[index], lookups.donor_offsets[index + 1])
        rows = zip(
            lookups.donors[part].tolist(), lookups.donor_num_tokens[part].tolist(), strict=True
        )
        assert list(rows) == expected


@given(small_logs(), fields_in_key)
@_FAST
def test_differing_fields_are_those_that_differ(log: list[SmallRequest], fields: list[str]) -> None:
    sharing = _replay(log, fields).sharing

    for row in range(len(sharing.reader)):
        reader = log[sharing.reader[row]].identity
        donor = log[sharing.donor[row]].identity
        names = {n for n in KEYED if getattr(reader, n) != getattr(donor, n)}
        if "lora_name" in names:  # the name decides: what hangs on it doesn't count again
            names.discard("lora_revision")
        mask = int(sharing.differing[row])
        assert {name for name, bit in FIELD_BIT.items() if mask & bit} == names
        assert sharing.unknown[row] == 0


@given(small_logs(with_media=True), fields_in_key)
@_FAST
def test_safe_hits_never_exceed_the_hits_of_an_endless_pool(
    log: list[SmallRequest], fields: list[str]
) -> None:
    replay = _replay(log, fields)

    assert (replay.safe_lookups.num_cached_tokens <= replay.lookups.num_cached_tokens).all()


@given(small_logs(with_media=True), fields_in_key, st.sampled_from(KEYED))
@_FAST
def test_a_further_field_in_the_key_never_adds_findings(
    log: list[SmallRequest], fields: list[str], more: str
) -> None:
    before = _replay(log, fields).sharing
    after = _replay(log, [*(f for f in fields if f != more), more]).sharing

    unsafe_before = set(before.reader[unsafe_masks(before) != 0].tolist())
    unsafe_after = set(after.reader[unsafe_masks(after) != 0].tolist())
    assert unsafe_after <= unsafe_before


@given(small_logs(with_media=True))
@_FAST
def test_smallest_fields_let_nothing_through_and_no_fewer_do(log: list[SmallRequest]) -> None:
    replay = _replay(log, [])
    gaps = key_gaps(
        replay.trace, replay.sharing, lambda fields: sharing_with(replay, SERVERS, fields)
    )

    def is_closed(fields: tuple[str, ...]) -> bool:
        return not unsafe_masks(sharing_with(replay, SERVERS, fields)).any()

    assert is_closed(gaps.smallest)
    for size in range(len(gaps.smallest)):
        for fields in itertools.combinations((*KEYED, "media"), size):
            assert not is_closed(fields)


@given(small_logs(with_media=True), fields_in_key)
@_FAST
def test_unsafe_tokens_are_private_or_of_other_content(
    log: list[SmallRequest], fields: list[str]
) -> None:
    """Each unsafe token either lies outside of the public prefix, or its content is another's."""
    sharing = _replay(log, fields).sharing
    masks = unsafe_masks(sharing)

    tokens = unsafe_tokens(sharing, masks)

    assert ((tokens > 0) == (masks != 0)).all()
    assert (tokens <= sharing.num_tokens).all()


@given(small_logs(with_media=True))
@_FAST
def test_common_blocks_equal_a_comparison_block_by_block(log: list[SmallRequest]) -> None:
    trace = audit_log(log).traces[0]
    pairs = list(itertools.product(range(len(log)), repeat=2))
    left = np.array([pair[0] for pair in pairs])
    right = np.array([pair[1] for pair in pairs])

    common = common_blocks(trace, left, right)

    def overlapping(request: SmallRequest, block: int) -> list[tuple[str, int]]:
        start, end = block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE
        return [
            (span.identifier, span.offset)
            for span in request.media
            if span.offset < end and span.offset + span.num_tokens > start
        ]

    for (a, b), count in zip(pairs, common.tolist(), strict=True):
        expected = 0
        for block in range(min(len(log[a].tokens), len(log[b].tokens)) // BLOCK_SIZE):
            part = slice(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE)
            if log[a].tokens[part] != log[b].tokens[part]:
                break
            if overlapping(log[a], block) != overlapping(log[b], block):
                break
            expected += 1
        assert count == expected


@given(st.sets(st.integers(1, 31), max_size=12))
@_FAST
def test_hitting_set_is_the_smallest(patterns: set[int]) -> None:
    bits = [FIELD_BIT[name] for name in KEYED]
    masks = {sum(bit for place, bit in enumerate(bits) if p >> place & 1) for p in patterns}

    chosen = smallest_hitting_set(masks)

    def hits(fields: tuple[str, ...]) -> bool:
        return all(mask & sum(FIELD_BIT[f] for f in fields) for mask in masks)

    assert hits(chosen)
    assert not any(
        hits(fields)
        for size in range(len(chosen))
        for fields in itertools.combinations(KEYED, size)
    )


def test_rows_start_where_the_row_before_ends() -> None:
    identity = Identity()
    log = [
        SmallRequest(tokens=tuple(range(8)), identity=identity),
        SmallRequest(tokens=(*range(8), *range(100, 110)), identity=identity),
        SmallRequest(tokens=(*range(8), *range(100, 112)), identity=identity),
    ]
    replay = _replay(log, [])

    readers, starts = rows_of(replay.lookups)

    # Request 1 computed token 4 to 7 again (the last token of request 0 is never hit, so its last
    # block was request 0's): request 2 gets 8 tokens of request 0 and 8 of request 1.
    assert readers.tolist() == [1, 2, 2]
    assert starts.tolist() == [0, 0, 8]
