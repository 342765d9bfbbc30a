"""vLLM's block pool of one full attention group, one capacity at a time and exact to the block.

Requests are served one after another, so no block has more than one reference. What the one-pass
curve does not know is here: a tail block without a key takes a slot, two copies of a block take
two, where freed blocks queue depends on the release, and a prompt that is larger than the pool is
refused. `pool.vllm` is the same pool operation by operation, for any group and any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.pool import explicit_kernels, lru_kernels
from prefixaudit.pool.lru import hits_at, lookup_limits
from prefixaudit.pool.separate import own_nodes
from prefixaudit.pool.tails import num_slots

# Below this many steps plain Python is done before the compiled code is loaded.
_FEW_STEPS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPoolRules:
    """What decides hits in a pool of full blocks.

    unhashed_first       freed blocks without a key go to the front of the free queue (vLLM from
                         0.24), not to the back with the others (up to 0.23)
    drops_last_block     a lookup drops the last block it found (an EAGLE drafter)
    min_recomputed_tokens  tokens at a prompt's end that are never looked up
    num_reserved_blocks  blocks of the pool that never hold KV: vLLM's null block, 1
    """

    unhashed_first: bool
    drops_last_block: bool = False
    min_recomputed_tokens: int = 1
    num_reserved_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPool:
    """Lookups in the trace's order at one capacity, and what happened to the pool on the way.

    num_refused           requests with a prompt larger than the pool: they hit and store nothing
    num_cut_answers       requests whose answer found no further block and ended there
    num_evicted_blocks    keyed blocks that were handed out again
    num_unhashed_blocks   blocks taken that never got a key (tails); each took a slot
    num_duplicate_blocks  blocks stored while another one held the same key
    num_operations        block lookups, and blocks taken and given back
    """

    capacity_blocks: int | None
    lookups: Lookups
    num_refused: int
    num_cut_answers: int
    num_evicted_blocks: int
    num_unhashed_blocks: int
    num_duplicate_blocks: int
    num_operations: int


def simulate_pool(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int | None,
    rules: BlockPoolRules,
    with_donors: bool = True,
) -> SimulatedPool:
    """Serve the requests in order of arrival from a pool of `capacity_blocks`; None is endless.

    Requests of equal `namespaces` (int32 [requests]) share blocks. `capacity_blocks` includes the
    reserved ones. The donor of a block is the request that stored the copy which is found.
    """
    prepared = _Prepared.of(trace, namespaces, rules)
    return prepared.simulate(capacity_blocks, with_donors=with_donors)


def simulate_pool_at(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacities_blocks: Sequence[int | None],
    rules: BlockPoolRules,
    with_donors: bool = False,
    jobs: int = 1,
) -> tuple[SimulatedPool, ...]:
    """Run `simulate_pool` at each capacity, up to `jobs` at a time; the results don't depend on it.

    The compiled loop releases Python's lock, so threads share the trace and run side by side.
    """
    if jobs < 1:
        raise ValueError(f"{jobs} jobs; expected 1 or more")
    prepared = _Prepared.of(trace, namespaces, rules)

    def at(capacity_blocks: int | None) -> SimulatedPool:
        return prepared.simulate(capacity_blocks, with_donors=with_donors)

    if jobs == 1 or len(capacities_blocks) < 2 or not prepared.compiled:
        return tuple(at(capacity) for capacity in capacities_blocks)
    # Compiled before the threads start, or each would wait for the first.
    first = at(capacities_blocks[0])
    with ThreadPoolExecutor(max_workers=jobs) as executor:
        return (first, *executor.map(at, capacities_blocks[1:]))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A trace made ready: nodes and keys that only one namespace has.

    `endless_blocks` are as many as are taken if none is ever given out twice.
    """

    trace: BlockTrace
    namespaces: Int32Array
    rules: BlockPoolRules
    compiled: bool
    ends: Int64Array
    parent: Int64Array
    size: Int64Array
    depth: Int64Array
    first_key: Int64Array
    limits: Int64Array
    num_keyed: Int64Array
    prompt_slots: Int64Array
    slots: Int64Array
    most_levels: int
    endless_blocks: int

    @classmethod
    def of(cls, trace: BlockTrace, namespaces: Int32Array, rules: BlockPoolRules) -> _Prepared:
        if len(namespaces) != trace.num_requests:
            raise ValueError(
                f"namespaces: {len(namespaces)} entries; expected {trace.num_requests}"
            )
        tree = trace.tree
        prompt_slots, slots = num_slots(trace)
        compiled = len(tree.parent) + int(slots.sum()) >= _FEW_STEPS
        level = (lru_kernels.levels if compiled else lru_kernels.levels.py_func)(tree.parent)
        own = own_nodes(trace, namespaces, level, compiled=compiled)
        first_key = np.zeros(len(own.num_blocks) + 1, dtype=np.int64)
        np.cumsum(own.num_blocks, out=first_key[1:])
        found = hits_at(
            trace, namespaces, [None], min_recomputed_tokens=rules.min_recomputed_tokens
        )[0]
        if rules.drops_last_block:
            found = np.maximum(0, found - 1)
        return cls(
            trace=trace,
            namespaces=namespaces,
            rules=rules,
            compiled=compiled,
            ends=own.ends,
            parent=own.parent,
            size=own.num_blocks,
            depth=own.depth_blocks,
            first_key=first_key,
            limits=lookup_limits(trace, rules.min_recomputed_tokens),
            num_keyed=trace.num_blocks.astype(np.int64),
            prompt_slots=prompt_slots,
            slots=slots,
            most_levels=int(level.max(initial=0)),
            endless_blocks=int((slots - found).sum()) + int(slots.max(initial=0)),
        )

    def simulate(self, capacity_blocks: int | None, *, with_donors: bool) -> SimulatedPool:
        memory = _Memory.of(
            self._usable_blocks(capacity_blocks),
            num_keys=int(self.first_key[-1]),
            most_levels=self.most_levels,
            num_requests=self.trace.num_requests,
        )
        order = self.trace.replay_order()
        longest = int(self.limits.max(initial=0))
        kernel: Any = explicit_kernels.simulate
        at = 0
        while at < len(order):
            if with_donors:
                memory.reserve_donors(longest)
            at = (kernel if self.compiled else kernel.py_func)(
                order,
                at,
                self.ends,
                self.parent,
                self.size,
                self.depth,
                self.first_key,
                self.limits,
                self.num_keyed,
                self.prompt_slots,
                self.slots,
                self.rules.unhashed_first,
                self.rules.drops_last_block,
                with_donors,
                memory.after,
                memory.before,
                memory.key_of,
                memory.stored_by,
                memory.newer,
                memory.older,
                memory.holder,
                memory.table,
                memory.path,
                memory.hits,
                memory.first,
                memory.counts,
                memory.donors,
                memory.donor_blocks,
                memory.counters,
            )
        refused = memory.hits < 0
        counters = memory.counters.tolist()
        return SimulatedPool(
            capacity_blocks=capacity_blocks,
            lookups=memory.lookups(self.trace.block_size),
            num_refused=int(refused.sum()),
            num_cut_answers=counters[0],
            num_evicted_blocks=counters[1],
            num_unhashed_blocks=counters[2],
            num_duplicate_blocks=counters[3],
            num_operations=counters[4],
        )

    def _usable_blocks(self, capacity_blocks: int | None) -> int:
        if capacity_blocks is None:
            return self.endless_blocks
        if capacity_blocks < 0:
            raise ValueError(f"capacity of {capacity_blocks} blocks; expected 0 or more")
        return min(max(0, capacity_blocks - self.rules.num_reserved_blocks), self.endless_blocks)


@dataclass(slots=True)
class _Memory:
    """The arrays of one run; see `explicit_kernels.simulate`."""

    after: Int32Array
    before: Int32Array
    key_of: Int64Array
    stored_by: Int32Array
    newer: Int32Array
    older: Int32Array
    holder: Int32Array
    table: Int32Array
    path: Int64Array
    hits: Int64Array
    first: Int64Array
    counts: Int64Array
    counters: Int64Array
    donors: Int32Array
    donor_blocks: Int64Array

    @classmethod
    def of(cls, num_blocks: int, *, num_keys: int, most_levels: int, num_requests: int) -> _Memory:
        after = np.arange(1, num_blocks + 2, dtype=np.int32)
        before = np.arange(-1, num_blocks, dtype=np.int32)
        after[-1], before[0] = 0, num_blocks
        return cls(
            after=after,
            before=before,
            key_of=np.full(num_blocks + 1, -1, dtype=np.int64),
            stored_by=np.zeros(num_blocks + 1, dtype=np.int32),
            newer=np.zeros(num_blocks + 1, dtype=np.int32),
            older=np.zeros(num_blocks + 1, dtype=np.int32),
            holder=np.zeros(num_keys, dtype=np.int32),
            table=np.zeros(num_blocks + 1, dtype=np.int32),
            path=np.zeros(most_levels + 1, dtype=np.int64),
            hits=np.zeros(num_requests, dtype=np.int64),
            first=np.zeros(num_requests, dtype=np.int64),
            counts=np.zeros(num_requests, dtype=np.int64),
            counters=np.zeros(6, dtype=np.int64),
            donors=np.empty(0, dtype=np.int32),
            donor_blocks=np.empty(0, dtype=np.int64),
        )

    def reserve_donors(self, longest: int) -> None:
        """Make room for the donors of at least one more request of `longest` hit blocks."""
        used = int(self.counters[5])
        room = 2 * (used + len(self.hits)) + longest
        donors = np.empty(room, dtype=np.int32)
        donor_blocks = np.empty(room, dtype=np.int64)
        donors[:used] = self.donors[:used]
        donor_blocks[:used] = self.donor_blocks[:used]
        self.donors, self.donor_blocks = donors, donor_blocks

    def lookups(self, block_size: int) -> Lookups:
        """Return hits and donors in the order of the trace; they were written in that served."""
        offsets = np.zeros(len(self.hits) + 1, dtype=np.int64)
        np.cumsum(self.counts, out=offsets[1:])
        place = np.arange(offsets[-1]) + np.repeat(self.first - offsets[:-1], self.counts)
        return Lookups(
            num_cached_tokens=np.maximum(0, self.hits) * block_size,
            donor_offsets=offsets,
            donors=self.donors[place],
            donor_num_tokens=self.donor_blocks[place] * block_size,
        )
