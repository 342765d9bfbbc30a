"""Look up, allocate and free on one group of full attention, by hand and against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from tests.pool.vllm.pools import BLOCK, add, compute, full, manager, request, rules


def test_repeated_prompt_is_hit_up_to_its_last_token() -> None:
    pool = manager(rules(), 20)
    prompt = [1, 2, 3]

    assert add(pool, request(0, 12, prompt)) == 0
    # 12 tokens are 3 blocks, but only 11 tokens may be hit: 2 blocks.
    assert add(pool, request(1, 12, prompt)) == 8
    assert add(pool, request(2, 13, prompt)) == 12


def test_running_request_is_hit_before_it_has_computed() -> None:
    """Blocks get their keys when they are scheduled."""
    pool = manager(rules(), 20)
    add(pool, request(0, 12, [1, 2, 3]), first=8)

    assert add(pool, request(1, 12, [1, 2, 3])) == 8


def test_request_that_does_not_read_the_cache_stores_a_second_copy() -> None:
    pool = manager(rules(), 20)
    add(pool, request(0, 9, [1, 2]))
    blind = request(1, 9, [1, 2])
    blind.reads_cache = False

    assert add(pool, blind) == 0
    # 3 blocks each, nothing shared.
    assert pool.num_free_blocks == 14


def test_hit_blocks_in_the_free_queue_count_against_the_free_blocks() -> None:
    pool = manager(rules(), 4)
    first = request(0, 8, [1, 2])
    add(pool, first)
    pool.free(first)
    # 17 tokens are 5 blocks: 2 hit ones, which are free now, and 3 new. 4 are free.
    refused = request(1, 17, [1, 2])

    assert pool.look_up(refused).num_tokens == 8
    assert add(pool, refused) is None
    assert pool.num_free_blocks == 4
    assert add(pool, request(2, 16, [1, 2])) == 8


def test_refusal_changes_nothing() -> None:
    pool = manager(rules(), 3)
    holder = request(0, 8)
    add(pool, holder)
    order = pool.pool.free_blocks()

    assert add(pool, request(1, 8)) is None
    assert pool.pool.free_blocks() == order
    assert pool.tables(request(1, 8)) == [[]]


def test_tail_of_a_finished_request_is_evicted_first() -> None:
    pool = manager(rules(), 4)
    first = request(0, 12, [1, 2, 3])
    add(pool, first)
    pool.free(first)

    add(pool, request(1, 8))

    # One block was never used; then block 3 of the first request went.
    assert pool.take_evicted() == [(0, 3)]
    assert pool.look_up(request(2, 13, [1, 2, 3])).num_tokens == 8


def test_answer_is_cached_block_by_block() -> None:
    pool = manager(rules(), 20)
    first = request(0, 6, [1, 2, 3])
    add(pool, first)
    compute(pool, first, 5)

    # 11 tokens are computed: 2 full blocks.
    assert add(pool, request(1, 20, [1, 2, 3, 4])) == 8


def test_eagle_drops_the_last_matched_block() -> None:
    pool = manager(rules(use_eagle=True), 20)
    add(pool, request(0, 12, [1, 2, 3]))

    assert add(pool, request(1, 13, [1, 2, 3])) == 8
    assert add(pool, request(2, 5, [1])) == 0


class PlainPool:
    """The same rules over plain lists, one group of full attention; slow and short.

    `free` is the queue, `keys[block]` what a block holds, `cached[key]` its blocks in order.
    """

    def __init__(self, num_usable: int, *, unhashed_first: bool) -> None:
        self.free = list(range(1, num_usable + 1))
        self.keys: dict[int, int] = {}
        self.cached: dict[int, list[int]] = {}
        self.readers: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}
        self.evicted: list[int] = []
        self.unhashed_first = unhashed_first

    def hit(self, new: PoolRequest) -> list[int]:
        blocks = []
        for key in new.keys[: (new.num_tokens - 1) // BLOCK]:
            assert isinstance(key, int)
            if not self.cached.get(key):
                break
            blocks.append(self.cached[key][0])
        return blocks

    def grow(self, running: PoolRequest, end: int, hit: list[int]) -> bool:
        table = self.tables.get(running.number, [])
        missing = -(-end // BLOCK) - len(table) - len(hit)
        if missing + sum(block in self.free for block in hit) > len(self.free):
            return False
        for block in hit:
            if block in self.free:
                self.free.remove(block)
            self.readers[block] = self.readers.get(block, 0) + 1
        table = table + hit
        for _ in range(missing):
            block = self.free.pop(0)
            if block in self.keys:
                old = self.keys.pop(block)
                self.evicted.append(old)
                self.cached[old].remove(block)
            self.readers[block] = 1
            table.append(block)
        self.tables[running.number] = table
        for place in range(end // BLOCK):
            if table[place] not in self.keys:
                key = running.keys[place]
                assert isinstance(key, int)
                self.keys[table[place]] = key
                self.cached.setdefault(key, []).append(table[place])
        return True

    def leave(self, number: int) -> None:
        front: list[int] = []
        back: list[int] = []
        for block in reversed(self.tables.pop(number)):
            self.readers[block] -= 1
            if self.readers[block] == 0:
                unhashed = self.unhashed_first and block not in self.keys
                (front if unhashed else back).append(block)
        self.free = front + self.free + back


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "compute", "free"]),
            st.integers(1, 24),
            st.lists(st.integers(0, 1), max_size=6),
        ),
        max_size=40,
    ),
    st.integers(3, 14),
    st.sampled_from(["0.23.0", "0.24.0"]),
)
def test_manager_equals_the_plain_pool(
    operations: list[tuple[str, int, list[int]]], num_usable: int, version: str
) -> None:
    pool = manager(rules(full(), version=version), num_usable)
    plain = PlainPool(num_usable, unhashed_first=version == "0.24.0")
    running: list[PoolRequest] = []
    for number, (kind, size, branches) in enumerate(operations):
        if kind == "add":
            new = request(number, size, _chain(branches[: size // BLOCK]))
            expected = plain.hit(new)
            has_room = plain.grow(new, size, expected)
            hit = add(pool, new)
            assert hit == (len(expected) * BLOCK if has_room else None)
            if has_room:
                running.append(new)
        elif running:
            chosen = running[size % len(running)]
            if kind == "free":
                plain.leave(chosen.number)
                pool.free(chosen)
                running.remove(chosen)
            else:
                has_room = plain.grow(chosen, chosen.num_computed_tokens + 1, [])
                assert compute(pool, chosen, 1) == has_room
                chosen.num_tokens = chosen.num_computed_tokens
        assert pool.pool.free_blocks() == plain.free
    assert [key for _, key in pool.take_evicted()] == plain.evicted


def _chain(branches: list[int]) -> list[int]:
    """Number the nodes of a binary tree along a path, so that equal prefixes have equal keys."""
    keys, node = [], 1
    for branch in branches:
        node = 2 * node + branch
        keys.append(node)
    return keys


def test_pool_of_the_manager_includes_the_null_block() -> None:
    assert PoolManager(rules(), 5).num_free_blocks == 4
