"""JSON lines for other tools: read back, they give the same hits."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain.export_lines import write_bailian, write_mooncake
from prefixaudit.core.identity import Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.trace import BlockTrace, Int32Array
from prefixaudit.pool import hit_rates, hits_at, replay_lru
from tests.chain.prompts import build, hash_prompt, token_prompt


def lines(trace: BlockTrace, namespaces: Int32Array | None = None) -> list[dict[str, Any]]:
    file = io.BytesIO()
    write_mooncake(trace, file, namespaces=namespaces)
    return [orjson.loads(line) for line in file.getvalue().splitlines()]


def read_back(records: list[dict[str, Any]], block_size: int) -> BlockTrace:
    return build(
        [
            hash_prompt(
                record["hash_ids"],
                record["input_length"],
                block_size=block_size,
                arrival_s=record["timestamp"] / 1e3,
            )
            for record in records
        ]
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            token_prompt,
            st.lists(st.integers(0, 1), max_size=14),
            identity=st.builds(Identity, tenant=st.sampled_from(["a", "b"])),
            arrival_s=st.floats(0, 100),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([(), ("tenant",)]),
)
def test_read_back_lines_give_the_same_hits_at_every_capacity(
    log: list[Prompt], key: tuple[str, ...]
) -> None:
    trace = build(log, block_size=2)
    namespaces = trace.namespaces(key)
    capacities = range(trace.num_distinct_blocks * 2 + 1)

    back = read_back(lines(trace, namespaces), 2)

    expected = hits_at(trace, namespaces, capacities, min_recomputed_tokens=1)
    found = hits_at(back, back.namespaces(()), capacities, min_recomputed_tokens=1)
    assert (found == expected[:, trace.replay_order()]).all()
    assert back.num_prompt_tokens.tolist() == trace.num_prompt_tokens[trace.replay_order()].tolist()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 511)),
        min_size=1,
        max_size=10,
    )
)
def test_every_hit_rate_of_a_trace_survives(log: list[tuple[list[int], int]]) -> None:
    trace = build(
        [
            hash_prompt(ids, 512 * len(ids) - missing, arrival_s=float(place))
            for place, (ids, missing) in enumerate(log)
        ]
    )
    back = read_back(lines(trace), 512)

    def rates(of: BlockTrace) -> str:
        shared = of.namespaces(())
        _, lookups = replay_lru(
            of, shared, capacity_blocks=None, min_recomputed_tokens=1, flops_by_depth=None
        )
        return str(hit_rates(of, shared, lookups.num_cached_tokens, capacity_blocks=None))

    assert rates(back) == rates(trace)


def test_ids_are_dense_in_order_of_first_appearance() -> None:
    """Arrival decides, not the log's order; the partial block has an id too."""
    trace = build(
        [
            hash_prompt([70, 71, 72], 1300, arrival_s=12.0),
            hash_prompt([70, 99], 1024, arrival_s=10.5),
            hash_prompt([70, 71, 72], 1300, arrival_s=12.25),
        ]
    )

    assert lines(trace) == [
        {"timestamp": 0, "input_length": 1024, "hash_ids": [0, 1]},
        {"timestamp": 1500, "input_length": 1300, "hash_ids": [0, 2, 3]},
        {"timestamp": 1750, "input_length": 1300, "hash_ids": [0, 2, 3]},
    ]


def test_partial_blocks_of_tokens_have_ids_of_their_own() -> None:
    trace = build([token_prompt(range(6)), token_prompt(range(6))], block_size=4)

    assert [line["hash_ids"] for line in lines(trace)] == [[0, 1], [0, 2]]


def test_answers_are_not_written_but_their_length_is() -> None:
    """The second prompt goes on where the first one's answer stood."""
    trace = build(
        [token_prompt(range(4), answer=[4, 5, 6, 7, 8]), token_prompt(range(8), answer=None)],
        block_size=4,
    )

    assert lines(trace) == [
        {"input_length": 4, "output_length": 5, "hash_ids": [0]},
        {"input_length": 8, "hash_ids": [0, 1]},
    ]


def test_bailian_lines_link_the_turns_of_a_session() -> None:
    trace = build(
        [
            token_prompt(range(4), session="s", arrival_s=1.0),
            token_prompt(range(4), session=None, arrival_s=1.25),
            token_prompt(range(8), session="s", arrival_s=2.5),
        ],
        block_size=4,
    )
    file = io.BytesIO()
    write_bailian(trace, file)
    records = [orjson.loads(line) for line in file.getvalue().splitlines()]

    assert [(r["chat_id"], r["parent_chat_id"], r["turn"]) for r in records] == [
        (0, -1, 1),
        (1, -1, 1),
        (2, 0, 2),
    ]
    assert [r["timestamp"] for r in records] == [0.0, 0.25, 1.5]
    assert [r["hash_ids"] for r in records] == [[0], [0], [0, 1]]


@pytest.mark.parametrize("namespaces", [None, np.empty(0, dtype=np.int32)])
def test_an_empty_trace_is_no_line(namespaces: Int32Array | None) -> None:
    assert lines(build([]), namespaces) == []
