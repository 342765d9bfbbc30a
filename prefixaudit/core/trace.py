"""BlockTrace, the waist of the house: above it everything is text, below it everything is integers.

All full blocks of a log form one tree: a node is a run of blocks that every request passes as a
whole (a compressed edge of the radix tree over the log), so the tree, not a list of accesses, is
what is kept. A block's id is its place in the tree; equal ids are equal chains over tokens and
media, and nothing else. The identity fields of a request select a namespace (see `namespaces`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.identity import Identity

Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]
Float64Array: TypeAlias = NDArray[np.float64]

ROOT = -1
"""The parent of a node that starts a prompt, and the node of a request without a full block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTree:
    """Runs of blocks. Block ids of a node are [first_block, first_block + num_blocks).

    parent        int32 [nodes]   the node before this one, ROOT at the start of a prompt
    first_block   int64 [nodes]
    num_blocks    int32 [nodes]   1 or more
    depth_blocks  int32 [nodes]   number of blocks before the node's first one
    labels        uint64 [blocks, 2]  what tells a block from its siblings: the first 16 bytes of
                  its canonical token-chain digest, or (a trace's own hash id, 0)
    """

    parent: Int32Array
    first_block: Int64Array
    num_blocks: Int32Array
    depth_blocks: Int32Array
    labels: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrace:
    """Requests in log order, as columns of length [requests].

    index              int64    position in the log, from 0, counting every request read
    node               int32    tree node whose end is the end of the request's last full block,
                                generated ones included; ROOT without a full block
    num_blocks         int32    full blocks of prompt and cached answer together
    num_prompt_tokens  int64
    num_generated_tokens int64  tokens of the answer that follow the prompt in the pool
    num_output_tokens  int64    length of the whole answer, -1 where unknown
    arrival_s          float64  NaN where unknown
    identity           int32    position in `identities`
    session            int32    equal for requests of one session, -1 where unknown
    reads_cache        bool     False: the request looks nothing up, but stores
    request_ids        str
    partial_ids        uint64   a trace's id of the partial block after the full ones
    has_partial_id     bool     where there is none (token prompts never have one), False
    """

    block_size: int
    tree: BlockTree
    identities: tuple[Identity, ...]
    index: Int64Array
    node: Int32Array
    num_blocks: Int32Array
    num_prompt_tokens: Int64Array
    num_generated_tokens: Int64Array
    num_output_tokens: Int64Array
    arrival_s: Float64Array
    identity: Int32Array
    session: Int32Array
    reads_cache: NDArray[np.bool_]
    request_ids: tuple[str, ...]
    partial_ids: NDArray[np.uint64]
    has_partial_id: NDArray[np.bool_]

    @property
    def num_requests(self) -> int:
        return len(self.index)

    @property
    def num_block_accesses(self) -> int:
        return int(self.num_blocks.sum(dtype=np.int64))

    @property
    def num_distinct_blocks(self) -> int:
        return len(self.tree.labels)

    def of_requests(self, positions: Int64Array) -> BlockTrace:
        """Return a trace of the requests at `positions`, in that order; the tree stays as it is."""
        return replace(
            self,
            index=self.index[positions],
            node=self.node[positions],
            num_blocks=self.num_blocks[positions],
            num_prompt_tokens=self.num_prompt_tokens[positions],
            num_generated_tokens=self.num_generated_tokens[positions],
            num_output_tokens=self.num_output_tokens[positions],
            arrival_s=self.arrival_s[positions],
            identity=self.identity[positions],
            session=self.session[positions],
            reads_cache=self.reads_cache[positions],
            request_ids=tuple(self.request_ids[position] for position in positions.tolist()),
            partial_ids=self.partial_ids[positions],
            has_partial_id=self.has_partial_id[positions],
        )

    def namespaces(self, fields: tuple[str, ...]) -> Int32Array:
        """Number requests (int32): equal numbers are equal values of the identity `fields`."""
        numbers: dict[tuple[object, ...], int] = {}
        of_identity = [
            numbers.setdefault(identity.values(fields), len(numbers))
            for identity in self.identities
        ]
        return np.asarray(of_identity, dtype=np.int32)[self.identity]

    def replay_order(self) -> Int64Array:
        """Return positions in order of arrival (int64); log order where a time isn't known."""
        if np.isnan(self.arrival_s).any():
            return np.arange(self.num_requests, dtype=np.int64)
        return np.argsort(self.arrival_s, kind="stable").astype(np.int64)
