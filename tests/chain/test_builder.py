"""The trace that comes out of prompts: what is shared in the tree is what is shared in the log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain import TraceBuilder, canonical_chain, tree
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import MediaSpan, Prompt
from prefixaudit.core.request import BlockHashes
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.errors import IncompleteError
from tests.chain.prompts import build, hash_prompt, paths, token_array, token_prompt

values = st.sampled_from([UNKNOWN, None, "a", "b"])
media = st.lists(
    st.builds(
        MediaSpan,
        identifier=st.sampled_from(["cat", "dog"]),
        offset=st.integers(0, 12),
        num_tokens=st.integers(1, 5),
    ),
    max_size=1,
).map(tuple)
prompts = st.builds(
    token_prompt,
    st.lists(st.integers(0, 1), max_size=14),
    answer=st.none() | st.lists(st.integers(0, 1), max_size=6),
    identity=st.builds(Identity, tenant=values, lora_name=values),
    session=values,
    media=media,
)
batches = st.sampled_from([1, 7, 1_000])


def stored(prompt: Prompt) -> list[int]:
    answer = prompt.generated_token_ids
    assert not isinstance(prompt.tokens, BlockHashes)
    kept = [] if answer is None or answer is UNKNOWN else answer.tolist()[:-1]
    return [*prompt.tokens.tolist(), *kept]


@settings(max_examples=200, deadline=None)
@given(st.lists(prompts, max_size=12), st.integers(1, 4), st.integers(0, 40))
def test_one_chain_with_namespaces_groups_blocks_as_complete_chains_and_as_plain_values(
    log: list[Prompt], block_size: int, remembered_tokens: int
) -> None:
    """Three ways to say which blocks are the same: tree and namespace, SHA-256, and the values."""
    builder = TraceBuilder(
        block_size=block_size, cache_generated=True, remembered_tokens=remembered_tokens
    )
    for index, prompt in enumerate(log):
        builder.add(prompt, index)
    trace = builder.finish()
    namespaces = trace.namespaces(IDENTITY_FIELDS)
    by_tree, by_digest, by_value = [], [], []
    for place, prompt in enumerate(log):
        tokens = stored(prompt)
        identity = prompt.request.identity
        digests = canonical_chain(token_array(tokens), block_size, identity, prompt.media)
        by_digest += digests
        by_tree += [(int(namespaces[place]), block) for block in paths(trace)[place]]
        for end in range(block_size, len(tokens) + 1, block_size):
            spans = sorted(
                (s.offset, s.num_tokens, s.identifier) for s in prompt.media if s.offset < end
            )
            by_value.append((identity, tuple(tokens[:end]), tuple(spans)))

    def partition(keys: list[object]) -> list[int]:
        return [keys.index(key) for key in keys]

    assert partition([*by_tree]) == partition([*by_digest]) == partition([*by_value])


@settings(max_examples=100, deadline=None)
@given(st.lists(prompts, max_size=8), batches, st.booleans())
def test_labels_are_the_canonical_digests(log: list[Prompt], batch: int, compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefixaudit.chain.builder._BATCH_BLOCKS", batch)
        patch.setattr(tree, "_FEW_BLOCKS", 0 if compiled else 10**9)
        trace = build(log, block_size=2)

    for path, prompt in zip(paths(trace), log, strict=True):
        digests = canonical_chain(token_array(stored(prompt)), 2, media=prompt.media)
        expected = np.frombuffer(b"".join(d[:16] for d in digests), dtype="<u8").reshape(-1, 2)
        assert (trace.tree.labels[path] == expected).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=12), batches, st.booleans())
def test_block_ids_match_only_after_the_same_ids(
    log: list[list[int]], batch: int, compiled: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefixaudit.chain.builder._BATCH_BLOCKS", batch)
        patch.setattr(tree, "_FEW_BLOCKS", 0 if compiled else 10**9)
        trace = build([hash_prompt(ids, 512 * len(ids)) for ids in log])

    # Dense numbers in order of first appearance, of all prefixes.
    numbers: dict[tuple[int, ...], int] = {}
    expected = [
        [numbers.setdefault(tuple(ids[: i + 1]), len(numbers)) for i in range(len(ids))]
        for ids in log
    ]
    assert paths(trace) == expected
    assert trace.num_distinct_blocks == len(numbers)


@given(st.lists(st.lists(st.integers(0, 1), max_size=8), max_size=10))
def test_a_node_is_passed_as_a_whole_and_parents_come_first(log: list[list[int]]) -> None:
    trace = build([hash_prompt(ids, 512 * len(ids)) for ids in log])
    nodes = trace.tree
    ends = nodes.first_block + nodes.num_blocks

    accesses = Counter(block for path in paths(trace) for block in path)

    assert (nodes.parent < np.arange(len(nodes.parent))).all()
    assert ends.tolist() == [
        *nodes.first_block.tolist()[1:],
        *([trace.num_distinct_blocks] if log and len(ends) else []),
    ]
    for first, end in zip(nodes.first_block.tolist(), ends.tolist(), strict=True):
        assert len({accesses[block] for block in range(first, end)}) == 1


def test_nothing_is_hashed_twice_in_a_conversation() -> None:
    """Turns of 10, 20, … 100 blocks; tokens of the second conversation part in block 50."""
    builder = TraceBuilder(block_size=16, cache_generated=False)
    history = list(range(1600))
    for turn in range(1, 11):
        builder.add(token_prompt(history[: 160 * turn], session="s"), turn)
    assert builder.num_hashed_blocks == 100

    builder.add(token_prompt([*history[:800], *range(9000, 9800)], session="s"), 11)

    assert builder.num_hashed_blocks == 150


def test_a_prompt_without_a_session_finds_an_earlier_one_by_its_first_blocks() -> None:
    """It may be found late, at the longest of the lengths kept, but is then compared to its end."""
    builder = TraceBuilder(block_size=16, cache_generated=False)
    for turn in range(1, 11):
        builder.add(token_prompt(range(160 * turn)), turn)

    assert builder.num_hashed_blocks == 100


def test_an_answer_enters_the_pool_without_its_last_token() -> None:
    answered = token_prompt([1, 2], answer=[3, 4, 5])

    trace = build([answered], block_size=2)

    assert trace.num_generated_tokens.tolist() == [2]
    assert trace.num_blocks.tolist() == [2]
    assert build([answered], block_size=2, cache_generated=False).num_blocks.tolist() == [1]


@pytest.mark.parametrize("answer", [UNKNOWN, None, []])
def test_no_answer_adds_nothing(answer: list[int] | None | Unknown) -> None:
    trace = build([token_prompt([1, 2], answer=answer)], block_size=2)

    assert trace.num_generated_tokens.tolist() == [0]
    assert trace.num_blocks.tolist() == [1]


def test_the_last_id_of_a_trace_may_be_a_partial_block() -> None:
    trace = build([hash_prompt([5, 6], 700), hash_prompt([5], 700), hash_prompt([5, 6], 1024)])

    assert trace.num_blocks.tolist() == [1, 1, 2]
    assert trace.has_partial_id.tolist() == [True, False, False]
    assert trace.partial_ids.tolist() == [6, 0, 0]


def test_block_size_of_the_ids_decides() -> None:
    assert build([hash_prompt([1], 64, block_size=64)], block_size=16).block_size == 64
    assert build([token_prompt([1])], block_size=16).block_size == 16


@pytest.mark.parametrize("ids", [[], [1, 2, 3]])
def test_ids_that_do_not_fit_the_length_are_refused(ids: list[int]) -> None:
    with pytest.raises(
        IncompleteError,
        match=r"^trace.jsonl:1: \d block ids for 700 tokens; expected 1 or 2 of 512",
    ):
        build([hash_prompt(ids, 700)])


def test_two_block_sizes_in_one_log_are_refused() -> None:
    with pytest.raises(IncompleteError, match="blocks of 512 tokens in a log that began with"):
        build([token_prompt([1]), hash_prompt([1], 512)])


def test_ids_up_to_64_bits_and_tokens_stand_side_by_side() -> None:
    large = 2**64 - 1
    trace = build(
        [
            hash_prompt([large], 4, block_size=4),
            token_prompt(range(4)),
            hash_prompt([large], 4, block_size=4),
        ],
        block_size=4,
    )

    assert paths(trace) == [[0], [1], [0]]
    assert trace.tree.labels[0].tolist() == [large, 0]


def test_columns_say_what_the_requests_say() -> None:
    trace = build(
        [
            token_prompt(
                [1] * 4, name="a", session="s", arrival_s=2.5, identity=Identity(tenant="t")
            ),
            token_prompt([1] * 4, name="b", session=None, reads_cache=False),
            token_prompt([1], name="c", session="s", identity=Identity(tenant="t")),
        ]
    )

    assert trace.request_ids == ("a", "b", "c")
    assert trace.session.tolist() == [0, -1, 0]
    assert trace.arrival_s[0] == 2.5
    assert np.isnan(trace.arrival_s[1:]).all()
    assert [trace.identities[i].tenant for i in trace.identity] == ["t", UNKNOWN, "t"]
    assert trace.reads_cache.tolist() == [True, False, True]
    assert trace.node.tolist() == [0, 0, -1]
