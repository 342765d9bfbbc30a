"""Traces relabelled by a key: who shares a block, against (chain, namespace) told plainly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from prefixaudit.core.trace import BlockTrace
from prefixaudit.pool import lru_kernels, separate_kernels
from prefixaudit.pool.separate import cut_first_blocks, numbered, separated, split_nodes
from tests.pool.traces import make_trace

SEEDS = range(6)


def _random_trace(seed: int) -> tuple[BlockTrace, list[list[int]]]:
    """Sixty requests of up to twelve blocks that branch off one another; ids name the blocks."""
    random = np.random.default_rng(seed)
    prompts: list[list[int]] = []
    for number in range(60):
        start: list[int] = []
        if prompts and random.random() < 0.8:
            other = prompts[int(random.integers(len(prompts)))]
            start = other[: int(random.integers(len(other) + 1))]
        fresh = int(random.integers(0 if start else 1, 7))
        prompts.append([*start, *(100 * number + place for place in range(fresh))])
    return make_trace(prompts, block_size=1), prompts


def _blocks(trace: BlockTrace, position: int) -> list[int]:
    """Return the ids of the blocks that a request passes, from its prompt's start."""
    tree = trace.tree
    found: list[int] = []
    node = int(trace.node[position])
    while node >= 0:
        first = int(tree.first_block[node])
        found = [*range(first, first + int(tree.num_blocks[node])), *found]
        node = int(tree.parent[node])
    return found


def _check(
    own: BlockTrace, prompts: list[list[int]], keys: Sequence[Sequence[tuple[object, ...]]]
) -> None:
    """Two requests share a block of `own` exactly where its key is equal."""
    ids: dict[tuple[object, ...], int] = {}
    for position, prompt in enumerate(prompts):
        blocks = _blocks(own, position)
        assert len(blocks) == len(prompt)
        for block, key in zip(blocks, keys[position], strict=True):
            assert ids.setdefault(key, block) == block
    assert len(set(ids.values())) == len(ids) == own.num_distinct_blocks


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_shared_exactly_where_chain_and_namespace_are_equal(seed: int) -> None:
    trace, prompts = _random_trace(seed)
    random = np.random.default_rng(seed)
    namespace = random.integers(0, 4, len(prompts))

    own, origin = separated(
        trace, np.zeros(len(trace.tree.parent), dtype=np.int64), [numbered(namespace)]
    )

    keys = [
        [(int(namespace[i]), tuple(prompt[: block + 1])) for block in range(len(prompt))]
        for i, prompt in enumerate(prompts)
    ]
    _check(own, prompts, keys)
    assert (trace.tree.num_blocks[origin] == own.tree.num_blocks).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_first_block_can_be_shared_where_the_others_are_not(seed: int) -> None:
    trace, prompts = _random_trace(seed)
    random = np.random.default_rng(seed)
    first = numbered(random.integers(0, 2, len(prompts)))
    rest = numbered(first, random.integers(0, 3, len(prompts)))
    cut = cut_first_blocks(trace)

    own, _ = separated(cut, (cut.tree.depth_blocks > 0).astype(np.int64), [first, rest])

    keys = [
        [
            (int(first[i] if block == 0 else rest[i]), block == 0, tuple(prompt[: block + 1]))
            for block in range(len(prompt))
        ]
        for i, prompt in enumerate(prompts)
    ]
    _check(own, prompts, keys)


@pytest.mark.parametrize("seed", SEEDS)
def test_parents_come_before_their_children(seed: int) -> None:
    trace, prompts = _random_trace(seed)
    namespace = numbered(np.arange(len(prompts)) % 5)

    own, _ = separated(trace, np.zeros(len(trace.tree.parent), dtype=np.int64), [namespace])

    assert (own.tree.parent < np.arange(len(own.tree.parent))).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_and_plain_loop_give_the_same(seed: int) -> None:
    trace, prompts = _random_trace(seed)
    random = np.random.default_rng(seed)
    first = numbered(random.integers(0, 3, len(prompts)))
    namespaces = np.stack([first, numbered(first, random.integers(0, 3, len(prompts)))])
    cut = cut_first_blocks(trace)
    arguments = (
        np.lexsort(namespaces[::-1]).astype(np.int64),
        namespaces,
        (cut.tree.depth_blocks > 0).astype(np.int64),
        cut.node,
        cut.tree.parent,
        lru_kernels.levels.py_func(cut.tree.parent),
    )

    compiled = separate_kernels.separate_by_class(*arguments)
    plain = separate_kernels.separate_by_class.py_func(*arguments)

    for one, other in zip(compiled, plain, strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_cut_nodes_hold_the_same_blocks(seed: int) -> None:
    trace, prompts = _random_trace(seed)
    random = np.random.default_rng(seed)
    node = random.integers(0, len(trace.tree.parent), 40)
    offset = random.integers(0, 9, 40)

    cut = split_nodes(trace, node, offset)

    for position in range(len(prompts)):
        assert _blocks(cut, position) == _blocks(trace, position)
    ends = set(_ends(cut).tolist())
    inside = (offset > 0) & (offset < trace.tree.num_blocks[node])
    wanted = (trace.tree.first_block[node] + offset)[inside]
    assert set(wanted.tolist()) <= ends


def _ends(trace: BlockTrace) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = trace.tree.first_block + trace.tree.num_blocks
    return ends


def test_numbers_are_equal_where_all_columns_are() -> None:
    numbers = numbered(np.array([5, 5, -1, 5]), np.array([0, 1, 0, 0]))

    assert numbers.tolist() == [1, 2, 0, 1]
