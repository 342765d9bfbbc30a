"""Requests that come as columns give the trace that they give one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN

BLOCK_SIZE = 4

# Ids of a request, and the tokens that are missing from its last block (0: it's full); with fewer
# tokens than a block missing, the last id may also be left out.
rows = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), max_size=6), st.integers(0, BLOCK_SIZE - 1), st.booleans()
    ),
    max_size=8,
)


def batch_of(requests: list[tuple[list[int], int, bool]], first_line: int) -> TraceBatch:
    ids: list[int] = [9]  # what stands between requests must not matter
    first, end, lengths = [], [], []
    for hash_ids, missing, has_partial in requests:
        missing = missing if hash_ids else 0
        lengths.append(len(hash_ids) * BLOCK_SIZE - missing)
        first.append(len(ids))
        ids += hash_ids if not missing or has_partial else hash_ids[:-1]
        end.append(len(ids))
        ids.append(9)
    return TraceBatch(
        path="trace.jsonl",
        name="trace.jsonl",
        block_size=BLOCK_SIZE,
        line=np.arange(first_line, first_line + len(requests), dtype=np.int64),
        arrival_s=np.arange(len(requests), dtype=np.float64),
        num_prompt_tokens=np.array(lengths, dtype=np.int64),
        num_output_tokens=np.arange(len(requests), dtype=np.int64),
        hash_ids=np.array(ids, dtype=np.uint64),
        first=np.array(first, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
    )


def assert_equal(left: BlockTrace, right: BlockTrace) -> None:
    for field in dataclasses.fields(BlockTrace):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, field.name
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        elif field.name == "tree":
            for part in dataclasses.fields(one):
                np.testing.assert_array_equal(getattr(one, part.name), getattr(other, part.name))
        else:
            assert one == other, field.name


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(rows, st.booleans()), max_size=4))
def test_batches_and_single_requests_may_alternate(
    log: list[tuple[list[tuple[list[int], int, bool]], bool]],
) -> None:
    mixed = TraceBuilder(block_size=16, cache_generated=True)
    single = TraceBuilder(block_size=16, cache_generated=True)
    num_requests = 0
    for requests, is_batch in log:
        batch = batch_of(requests, 1 + num_requests)
        builders = (single,) if is_batch else (single, mixed)
        if is_batch:
            mixed.add_batch(batch, num_requests)
        for request in batch.requests():
            assert isinstance(request.prompt, BlockHashes)
            prompt = Prompt(
                request=request,
                tokens=request.prompt,
                num_prompt_tokens=request.prompt.num_prompt_tokens,
                generated_token_ids=UNKNOWN,
            )
            for builder in builders:
                builder.add(prompt, num_requests)
            num_requests += 1
    if num_requests:
        assert_equal(mixed.finish(), single.finish())


def test_a_batch_of_other_blocks_is_not_taken() -> None:
    builder = TraceBuilder(block_size=16, cache_generated=True)
    batch = batch_of([([1, 2], 0, False)], 1)
    assert builder.takes(batch)
    builder.add_batch(batch, 0)

    assert builder.takes(batch)
    other = dataclasses.replace(batch, block_size=8)
    assert not builder.takes(other)
    with pytest.raises(AssertionError, match="another size"):
        builder.add_batch(other, 1)
