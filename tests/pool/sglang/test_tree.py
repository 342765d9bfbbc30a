"""The tree's rules one by one, each worked out by hand from the release notes of the engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.core.trace import Int64Array
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.sglang.tree import Node, RadixTree


def blocks(*ids: int) -> Int64Array:
    return np.asarray(ids, dtype=np.int64)


def new_tree(policy: str = "lru") -> RadixTree:
    return RadixTree(policy=POLICIES[policy])


def num_stored(tree: RadixTree, *ids: int) -> int:
    """Return how much of a run is stored, by an insertion that stores nothing new."""
    node, count = tree.root(0), 0
    while count < len(ids) and ids[count] in node.children:
        node = node.children[ids[count]]
        for block in node.blocks.tolist():
            if count == len(ids) or block != ids[count]:
                return count
            count += 1
    return count


def test_match_inside_a_node_splits_it() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2, 3, 4), donor=7)

    node, count = tree.match(0, blocks(1, 2, 9))

    assert count == 2
    assert node.blocks.tolist() == [1, 2]
    assert [child.blocks.tolist() for child in node.children.values()] == [[3, 4]]
    assert tree.donors(node).tolist() == [7, 7]


def test_part_behind_a_split_is_as_fresh_as_the_match() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2, 3), donor=0)
    tree.insert(0, blocks(5), donor=1)
    tree.match(0, blocks(1, 2))

    # 3 was not asked for, but its node was touched before the comparison: 5 is older now.
    assert tree.evict(1) == 1
    assert num_stored(tree, 5) == 0
    assert num_stored(tree, 1, 2, 3) == 3


def test_whole_leaves_are_evicted() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2, 3, 4), donor=0)

    assert tree.evict(1) == 4
    assert tree.num_blocks == 0


def test_parent_is_evictable_once_it_has_no_child() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2, 3), donor=0)
    tree.match(0, blocks(1, 2))

    assert tree.evict(2) == 3


def test_locked_path_stays() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2, 3), donor=0)
    node, _ = tree.match(0, blocks(1))
    tree.lock(node)

    assert tree.num_unlocked_blocks == 2
    assert tree.evict(3) == 2
    assert num_stored(tree, 1, 2, 3) == 1

    tree.unlock(node)

    assert tree.num_unlocked_blocks == 1
    assert tree.evict(3) == 1


def test_namespaces_share_no_block() -> None:
    tree = new_tree()
    tree.insert(0, blocks(1, 2), donor=0)

    assert tree.match(1, blocks(1, 2))[1] == 0


# Stored in the order a, b, c; then b is looked up, a is looked up, and c is inserted again.
# Last use: b < a < c. Insertions that passed: a 1, b 1, c 2. Made: a < b < c.
@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("lru", "bac"),
        ("mru", "cab"),
        ("fifo", "abc"),
        ("filo", "cba"),
        ("lfu", "bac"),
        ("slru", "bac"),
        ("priority", "cba"),
    ],
)
def test_order_of_a_policy(policy: str, order: str) -> None:
    tree = new_tree(policy)
    ids = {"a": 1, "b": 2, "c": 3}
    for number, (name, block) in enumerate(ids.items()):
        tree.insert(0, blocks(block), donor=number, priority={"a": 3, "b": 2, "c": 1}[name])
    tree.match(0, blocks(ids["b"]))
    tree.match(0, blocks(ids["a"]))
    tree.insert(0, blocks(ids["c"]), donor=9)

    evicted = []
    while tree.num_blocks:
        before = {name for name in ids if num_stored(tree, ids[name])}
        tree.evict(1)
        evicted += sorted(before - {name for name in ids if num_stored(tree, ids[name])})

    assert "".join(evicted) == order


def test_slru_keeps_what_was_inserted_twice() -> None:
    tree = new_tree("slru")
    tree.insert(0, blocks(1), donor=0)
    tree.insert(0, blocks(1), donor=0)
    tree.insert(0, blocks(2), donor=1)

    tree.evict(1)

    assert num_stored(tree, 1) == 1


def test_blocks_that_counted_before_count_no_hit() -> None:
    tree = new_tree("lfu")
    for _ in range(3):
        tree.insert(0, blocks(1), donor=0, counted_from=1)
    tree.insert(0, blocks(2), donor=1)

    tree.evict(1)

    assert num_stored(tree, 1) == 0


@given(
    policy=st.sampled_from(list(POLICIES)),
    actions=st.lists(
        st.tuples(
            st.sampled_from(["insert", "match", "lock", "unlock", "evict"]),
            st.lists(st.integers(0, 2), min_size=1, max_size=5),
        ),
        max_size=40,
    ),
)
def test_heap_takes_the_leaf_that_a_full_scan_takes(
    policy: str, actions: list[tuple[str, list[int]]]
) -> None:
    """The tree keeps one lazy heap; the engine builds a heap of all leaves at every eviction."""
    tree = new_tree(policy)
    locked: list[Node] = []
    for kind, ids in actions:
        # Ids are chains: a block's id holds its ancestors'.
        chain = blocks(
            *(sum((b + 1) * 4**p for p, b in enumerate(ids[: i + 1])) for i in range(len(ids)))
        )
        if kind == "insert":
            tree.insert(0, chain, donor=0, priority=ids[-1])
        elif kind == "match":
            tree.match(0, chain)
        elif kind == "lock":
            locked.append(tree.match(0, chain)[0])
            tree.lock(locked[-1])
        elif kind == "unlock" and locked:
            tree.unlock(locked.pop())
        elif kind == "evict":
            leaves = _unlocked_leaves(tree.root(0))
            expected = min(leaves, key=POLICIES[policy].rank, default=None)
            size = 0 if expected is None else len(expected.blocks)

            assert tree.evict(1) == size
            assert expected is None or expected.parent is None
        assert tree.num_unlocked_blocks == sum(
            len(node.blocks) for node in _nodes(tree.root(0)) if node.num_locks == 0
        )


def _nodes(root: Node) -> list[Node]:
    return [node for child in root.children.values() for node in [child, *_nodes(child)]]


def _unlocked_leaves(root: Node) -> list[Node]:
    return [node for node in _nodes(root) if not node.children and node.num_locks == 0]
