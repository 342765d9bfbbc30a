"""The one-pass replay against a dictionary of blocks, capacity by capacity."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prefixaudit.chain import tree
from prefixaudit.core.identity import Identity
from prefixaudit.core.trace import BlockTrace
from prefixaudit.pool import hits_at, lru, replay_lru
from tests.chain.prompts import build, hash_prompt, token_prompt

BLOCK_SIZE = 2
Donors = list[tuple[int, int]]


@dataclass(frozen=True)
class Served:
    """One request in the words of the plain simulation."""

    tenant: int
    blocks: tuple[int, ...]
    num_prompt_tokens: int
    reads_cache: bool = True


def as_trace(log: Sequence[Served]) -> BlockTrace:
    """Block b is the tokens (b, b); what doesn't fill a block is the token 9."""
    prompts = []
    for place, served in enumerate(log):
        tokens = [token for block in served.blocks for token in (block, block)] + [9]
        prompts.append(
            token_prompt(
                tokens[: served.num_prompt_tokens],
                name=str(place),
                # The last token of an answer is never stored: one more than counts.
                answer=[*tokens[served.num_prompt_tokens :], 9],
                identity=Identity(tenant=str(served.tenant)),
                reads_cache=served.reads_cache,
            )
        )
    return build(prompts, block_size=BLOCK_SIZE)


def plain_lru(
    log: Sequence[Served], capacity: int, recomputed: int, order: Sequence[int]
) -> tuple[list[int], list[Donors]]:
    """Return hits (blocks) and donors of each request by a dictionary of single blocks."""
    pool: OrderedDict[tuple[int, tuple[int, ...]], int] = OrderedDict()
    hits = [0] * len(log)
    donors: list[Donors] = [[] for _ in log]
    for place in order:
        served = log[place]
        keys = [(served.tenant, served.blocks[: i + 1]) for i in range(len(served.blocks))]
        limit = max(0, served.num_prompt_tokens - recomputed) // BLOCK_SIZE
        found = []
        for key in keys[:limit] if served.reads_cache else []:
            if key not in pool:
                break
            found.append(pool[key])
        hits[place] = len(found)
        for donor in found:
            if donors[place] and donors[place][-1][0] == donor:
                donors[place][-1] = (donor, donors[place][-1][1] + BLOCK_SIZE)
            else:
                donors[place].append((donor, BLOCK_SIZE))
        for i, key in reversed(list(enumerate(keys))):
            pool[key] = found[i] if i < len(found) else place
            pool.move_to_end(key)
        while len(pool) > capacity:
            pool.popitem(last=False)
    return hits, donors


@st.composite
def logs(draw: st.DrawFn) -> list[Served]:
    requests: list[Served] = []
    for _ in range(draw(st.integers(1, 25))):
        blocks: tuple[int, ...] = tuple(draw(st.lists(st.integers(0, 1), max_size=9)))
        goes_on: bool = draw(st.booleans())
        if requests and goes_on:
            # Go on from an earlier request, so that long prefixes are common.
            earlier: Served = draw(st.sampled_from(requests))
            blocks = earlier.blocks[: draw(st.integers(0, len(earlier.blocks)))] + blocks[:3]
        total = BLOCK_SIZE * len(blocks)
        requests.append(
            Served(
                tenant=draw(st.integers(0, 2)),
                blocks=blocks,
                num_prompt_tokens=draw(st.integers(0, total) | st.just(total)),
                reads_cache=draw(st.sampled_from([True, True, True, False])),
            )
        )
    return requests


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the loops compiled, or as plain Python."""
    size = 0 if request.param == "compiled" else 1_000_000_000
    monkeypatch.setattr(lru, "_FEW_STEPS", size)
    monkeypatch.setattr(tree, "_FEW_BLOCKS", size)
    return str(request.param)


def check(log: Sequence[Served], recomputed: int, key: str, order: Sequence[int]) -> None:
    trace = as_trace(log)
    if key == "shared":
        log = [Served(0, s.blocks, s.num_prompt_tokens, s.reads_cache) for s in log]
    namespaces = trace.namespaces(("tenant",) if key == "tenant" else ())
    flops_by_depth = np.array([1.0 + depth * depth for depth in range(32)])
    served_order = np.array(order, dtype=np.int64)
    largest = len({(s.tenant, s.blocks[: i + 1]) for s in log for i in range(len(s.blocks))})
    capacities = list(range(largest + 1))
    table = hits_at(
        trace,
        namespaces,
        [*capacities, None],
        min_recomputed_tokens=recomputed,
        order=served_order,
    )
    for capacity in [*capacities, None]:
        curve, lookups = replay_lru(
            trace,
            namespaces,
            capacity_blocks=capacity,
            min_recomputed_tokens=recomputed,
            flops_by_depth=flops_by_depth,
            order=served_order,
        )
        hits, donors = plain_lru(log, 10**9 if capacity is None else capacity, recomputed, order)
        saved = sum(float(flops_by_depth[:count].sum()) for count in hits)
        bounds = lookups.donor_offsets.tolist()
        named = list(zip(lookups.donors.tolist(), lookups.donor_num_tokens.tolist(), strict=True))

        assert (lookups.num_cached_tokens // BLOCK_SIZE).tolist() == hits
        assert [named[a:b] for a, b in pairwise(bounds)] == donors
        assert curve.at(capacity)[0] == sum(hits)
        assert curve.at(capacity)[1] == pytest.approx(saved)
        assert len(curve.num_cached_blocks) == largest + 1
        assert table[-1 if capacity is None else capacity].tolist() == hits


@pytest.mark.usefixtures("form")
@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(0, 3), st.sampled_from(["shared", "tenant"]), st.randoms())
@example(
    [Served(0, (0, 1, 0), 6), Served(0, (0, 1), 4), Served(1, (0, 1), 4)],
    1,
    "tenant",
    random.Random(1),
)
def test_hits_flops_and_donors_equal_a_plain_lru_at_every_capacity(
    log: list[Served], recomputed: int, key: str, shuffle: random.Random
) -> None:
    order = list(range(len(log)))
    shuffle.shuffle(order)

    check(log, recomputed, key, order)


@pytest.mark.usefixtures("form")
def test_times_of_last_access_may_run_out() -> None:
    """Two hundred requests over three runs: times are renumbered many times."""
    log = [Served(0, (i % 3, 1), 4) for i in range(200)]

    check(log, 0, "shared", range(200))


@pytest.mark.usefixtures("form")
def test_a_run_can_have_as_many_donors_as_blocks() -> None:
    """Before each return to the run, ever fewer other blocks push out less and less of its tail."""
    log = []
    for others in range(20, 0, -1):
        log.append(Served(0, tuple(range(24)), 48))
        log.append(Served(0, tuple(range(1000 * others, 1000 * others + others)), 0))

    check([*log, log[0]], 0, "shared", range(41))


def test_a_request_larger_than_the_pool_leaves_its_front() -> None:
    trace = build([hash_prompt(range(8), 8 * 512) for _ in range(2)])

    hits = hits_at(trace, trace.namespaces(()), [0, 1, 5, 8], min_recomputed_tokens=0)

    assert hits.tolist() == [[0, 0], [0, 1], [0, 5], [0, 8]]


def test_a_run_can_have_two_donors() -> None:
    """c pushes the tails of a's run out; the second a computes them again; the third has both."""
    a, c = hash_prompt(range(4), 4 * 512), hash_prompt([7, 8], 2 * 512)
    trace = build([a, c, a, a])

    _, lookups = replay_lru(
        trace,
        trace.namespaces(()),
        capacity_blocks=4,
        min_recomputed_tokens=0,
        flops_by_depth=None,
    )

    assert lookups.num_cached_tokens.tolist() == [0, 0, 1024, 2048]
    assert lookups.donor_offsets.tolist() == [0, 0, 0, 1, 3]
    assert lookups.donors.tolist() == [0, 0, 2]
    assert lookups.donor_num_tokens.tolist() == [1024, 1024, 1024]


def test_without_a_model_the_curve_has_no_flops() -> None:
    trace = build([token_prompt(range(8))])

    curve, _ = replay_lru(
        trace,
        trace.namespaces(()),
        capacity_blocks=None,
        min_recomputed_tokens=1,
        flops_by_depth=None,
    )

    assert len(curve.flops_saved) == 0
    assert np.isnan(curve.at(None)[1])


def test_a_log_without_a_full_block_has_no_hits() -> None:
    trace = build([token_prompt([1, 2]), token_prompt([1, 2]), token_prompt([])])

    curve, lookups = replay_lru(
        trace,
        trace.namespaces(()),
        capacity_blocks=None,
        min_recomputed_tokens=1,
        flops_by_depth=None,
    )

    assert curve.num_cached_blocks.tolist() == [0]
    assert lookups.num_cached_tokens.tolist() == [0, 0, 0]


def test_an_empty_log_has_an_empty_result() -> None:
    trace = build([])

    curve, lookups = replay_lru(
        trace,
        trace.namespaces(()),
        capacity_blocks=3,
        min_recomputed_tokens=1,
        flops_by_depth=np.empty(0),
    )

    assert curve.at(None) == (0, 0.0)
    assert lookups.donor_offsets.tolist() == [0]


def test_columns_of_the_wrong_length_are_refused() -> None:
    trace = build([token_prompt(range(9))])

    with pytest.raises(ValueError, match="namespaces: 2 entries; expected 1"):
        hits_at(trace, np.zeros(2, dtype=np.int32), [1], min_recomputed_tokens=1)
    with pytest.raises(ValueError, match="FLOPs of 1 depths; expected 2 or more"):
        replay_lru(
            trace,
            trace.namespaces(()),
            capacity_blocks=None,
            min_recomputed_tokens=1,
            flops_by_depth=np.ones(1),
        )
