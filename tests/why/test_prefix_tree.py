"""The prefix tree against comparing every prompt with every earlier one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.prefixes import common_length
from prefixaudit.core.request import TokenArray
from prefixaudit.why.prefix_tree import PrefixTree

PROMPTS = st.lists(
    st.lists(st.integers(0, 2), max_size=12).map(lambda ids: np.array(ids, dtype=np.uint32)),
    max_size=12,
)


def _common(first: TokenArray, second: TokenArray) -> int:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


@given(PROMPTS)
def test_shared_length_is_that_of_the_best_earlier_prompt(prompts: list[TokenArray]) -> None:
    tree = PrefixTree(max_tokens=10_000)
    for number, prompt in enumerate(prompts):
        lengths = [_common(prompt, earlier) for earlier in prompts[:number]]

        inserted = tree.insert(prompt, number)

        best = max(lengths, default=0)
        assert inserted.num_shared == best
        latest = max((n for n, length in enumerate(lengths) if length == best), default=-1)
        assert inserted.partner == (latest if best else -1)


@given(PROMPTS)
def test_tokens_and_shared_lengths_can_be_read_back(prompts: list[TokenArray]) -> None:
    tree = PrefixTree(max_tokens=10_000)
    nodes = [tree.insert(prompt, number).node for number, prompt in enumerate(prompts)]

    for prompt, node in zip(prompts, nodes, strict=True):
        assert PrefixTree.tokens_of(node, len(prompt)).tolist() == prompt.tolist()
    for first, node in zip(prompts, nodes, strict=True):
        for second, other in zip(prompts, nodes, strict=True):
            shared = min(PrefixTree.shared_length(node, other), len(first), len(second))
            assert shared == _common(first, second)


@settings(max_examples=50)
@given(PROMPTS)
def test_a_small_tree_never_finds_more_than_there_is(prompts: list[TokenArray]) -> None:
    tree = PrefixTree(max_tokens=16)
    for number, prompt in enumerate(prompts):
        best = max((_common(prompt, earlier) for earlier in prompts[:number]), default=0)

        assert tree.insert(prompt, number).num_shared <= best


def test_what_recent_prompts_pass_is_kept() -> None:
    tree = PrefixTree(max_tokens=64)
    system = np.arange(20, dtype=np.uint32)
    for number in range(20):
        own = np.full(10, 100 + number, dtype=np.uint32)
        shared = tree.insert(np.concatenate([system, own]), number).num_shared

        assert shared == (20 if number else 0)
    assert tree.num_dropped_tokens > 0


@given(st.integers(0, 600), st.integers(0, 9000))
def test_common_length_of_long_arrays(shared: int, rest: int) -> None:
    first = np.zeros(shared + rest, dtype=np.uint32)
    second = first.copy()
    second[shared:] = 1

    assert common_length(first, second) == shared
