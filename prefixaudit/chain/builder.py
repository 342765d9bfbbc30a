"""TraceBuilder: prompts in, one at a time, BlockTrace out.

Prompts are gathered into batches and inserted into one radix tree; of the prompts themselves only
a bounded number of recent ones is kept, so that nothing is hashed twice that needn't be.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixaudit.chain.digests import DigestMemory
from prefixaudit.chain.tree import GrowingTree
from prefixaudit.core.identity import Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, TokenArray
from prefixaudit.core.trace import ROOT, BlockTrace, Int64Array
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError

# What is held until it is in the tree: 8 or 16 bytes a block, some 500 a prompt.
_BATCH_BLOCKS = 262_144
_BATCH_PROMPTS = 16_384
_NO_LABELS = np.empty(0, dtype=np.int64)


def _num_output_tokens(prompt: Prompt) -> int:
    """Return the answer's length, as its ids or the server have it; -1 where neither does."""
    answer = prompt.generated_token_ids
    if answer is not None and answer is not UNKNOWN:
        return len(answer)
    reported = prompt.request.usage.num_completion_tokens
    return -1 if reported is None or reported is UNKNOWN else reported


def _extend(column: array[Any], values: NDArray[Any]) -> None:
    """Append values, cast to the column's type."""
    column.frombytes(values.astype(column.typecode).tobytes())


class TraceBuilder:
    """Builds the BlockTrace of a log, prompt by prompt.

    Tokens become canonical digests (`canonical`), 16 bytes of which label a block. A trace's block
    ids are labels as they are; the tree decides what they match, so an id that comes back under
    another parent is no prefix match. Only full blocks are inserted; a trace's last id may stand
    for a partial block, and is kept apart.

    With `cache_generated` the answer's tokens follow the prompt's into the pool, all but the last
    one: its KV would be computed by the step after it, which never ran. (Where the log has the
    answer as text, the token that ended it isn't there, and one computed token is left out.)

    A trace's block size is fixed by its ids. If it isn't `block_size`, the trace's own is used:
    `BlockTrace.block_size` says so, and a finer one can only be given as a range.
    """

    def __init__(
        self, *, block_size: int, cache_generated: bool, remembered_tokens: int = 4_194_304
    ) -> None:
        """Raises ValueError for a block size below 1.

        `remembered_tokens` bounds the recent prompts that are kept (about 6 bytes a token).
        """
        if block_size < 1:
            raise ValueError(f"block size {block_size}; expected 1 or more")
        self._block_size = block_size
        self._cache_generated = cache_generated
        self._kinds: set[str] = set()
        self._digests = DigestMemory(block_size=block_size, max_tokens=remembered_tokens)
        self._tree = GrowingTree()
        self._low: list[Int64Array] = []
        self._high: list[Int64Array | None] = []
        self._num_waiting_blocks = 0
        self._ends: list[Int64Array] = []
        self._identities: dict[Identity, int] = {}
        self._last_identity: tuple[Identity | None, int] = (None, -1)
        self._sessions: dict[str, int] = {}
        self._index = array("q")
        self._num_blocks = array("i")
        self._num_prompt_tokens = array("q")
        self._num_generated_tokens = array("q")
        self._num_output_tokens = array("q")
        self._arrival_s = array("d")
        self._identity = array("i")
        self._session = array("i")
        self._reads_cache = array("b")
        self._partial_ids = array("Q")
        self._has_partial_id = array("b")
        self._request_ids: list[str] = []

    @property
    def num_hashed_blocks(self) -> int:
        """Number of blocks whose digest was computed; the others were known from before."""
        return self._digests.num_hashed_blocks

    def add(self, prompt: Prompt, index: int) -> None:
        """Add the next prompt; `index` is its request's position in the log, from 0.

        Raises IncompleteError where a log mixes token prompts with block ids of another size, or
        the number of block ids does not fit the prompt's length.
        """
        num_generated, partial_id = 0, None
        match prompt.tokens:
            case BlockHashes() as hashes:
                low, partial_id = self._block_ids(prompt, hashes)
                high: Int64Array | None = None
            case token_ids:
                low, high, num_generated = self._labels(prompt, token_ids)
        request = prompt.request
        self._index.append(index)
        self._num_blocks.append(len(low))
        self._num_prompt_tokens.append(prompt.num_prompt_tokens)
        self._num_generated_tokens.append(num_generated)
        self._num_output_tokens.append(_num_output_tokens(prompt))
        arrival_s = request.arrival_s
        self._arrival_s.append(float("nan") if arrival_s is UNKNOWN else arrival_s)
        self._identity.append(self._number_of(request.identity))
        session = request.session_id
        self._session.append(
            -1
            if session is None or session is UNKNOWN
            else self._sessions.setdefault(session, len(self._sessions))
        )
        self._reads_cache.append(request.reads_cache)
        self._has_partial_id.append(partial_id is not None)
        self._partial_ids.append(partial_id or 0)
        self._request_ids.append(request.request_id)
        self._low.append(low)
        self._high.append(high)
        self._num_waiting_blocks += len(low)
        if self._num_waiting_blocks >= _BATCH_BLOCKS or len(self._low) >= _BATCH_PROMPTS:
            self._flush()

    def takes(self, batch: TraceBatch) -> bool:
        """Say whether a batch's blocks are of the size of those before, if there are any."""
        return not self._kinds or batch.block_size == self._block_size

    def add_batch(self, batch: TraceBatch, index: int) -> None:
        """Add requests that came as columns, as `add` would one by one; `takes` must hold.

        `index` is the position of the first one in the log.
        """
        assert self.takes(batch), "blocks of another size"
        self._flush()
        self._block_size = batch.block_size
        self._kinds.add("block ids")
        num_requests = len(batch)
        num_blocks = batch.num_prompt_tokens // batch.block_size
        has_partial_id = batch.end - batch.first > num_blocks
        partial_ids = np.zeros(num_requests, dtype=np.uint64)
        partial_ids[has_partial_id] = batch.hash_ids[batch.end[has_partial_id] - 1]
        _extend(self._index, np.arange(index, index + num_requests))
        _extend(self._num_blocks, num_blocks)
        _extend(self._num_prompt_tokens, batch.num_prompt_tokens)
        _extend(self._num_generated_tokens, np.zeros(num_requests))
        _extend(self._num_output_tokens, batch.num_output_tokens)
        _extend(self._arrival_s, batch.arrival_s)
        _extend(self._identity, np.full(num_requests, self._number_of(batch.identity)))
        _extend(self._session, np.full(num_requests, -1))
        _extend(self._reads_cache, np.ones(num_requests))
        _extend(self._has_partial_id, has_partial_id)
        _extend(self._partial_ids, partial_ids)
        self._request_ids.extend(batch.request_ids)
        first = np.ascontiguousarray(batch.first)
        ids = batch.hash_ids.view(np.int64)
        self._ends.append(self._tree.insert(ids, None, first, first + num_blocks))

    def finish(self) -> BlockTrace:
        """Return the trace of all prompts added."""
        self._flush()
        tree, number = self._tree.finish()
        ends = np.concatenate([*self._ends, _NO_LABELS])
        node = np.full(len(ends), ROOT, dtype=np.int32)
        node[ends >= 0] = number[ends[ends >= 0]]
        return BlockTrace(
            block_size=self._block_size,
            tree=tree,
            identities=tuple(self._identities),
            index=np.array(self._index, dtype=np.int64),
            node=node,
            num_blocks=np.array(self._num_blocks, dtype=np.int32),
            num_prompt_tokens=np.array(self._num_prompt_tokens, dtype=np.int64),
            num_generated_tokens=np.array(self._num_generated_tokens, dtype=np.int64),
            num_output_tokens=np.array(self._num_output_tokens, dtype=np.int64),
            arrival_s=np.array(self._arrival_s, dtype=np.float64),
            identity=np.array(self._identity, dtype=np.int32),
            session=np.array(self._session, dtype=np.int32),
            reads_cache=np.array(self._reads_cache, dtype=np.bool_),
            request_ids=tuple(self._request_ids),
            partial_ids=np.array(self._partial_ids, dtype=np.uint64),
            has_partial_id=np.array(self._has_partial_id, dtype=np.bool_),
        )

    def _number_of(self, identity: Identity) -> int:
        # Readers give neighbouring requests one object; hashing 17 fields is dear.
        last, number = self._last_identity
        if identity is not last:
            number = self._identities.setdefault(identity, len(self._identities))
            self._last_identity = (identity, number)
        return number

    def _block_ids(self, prompt: Prompt, hashes: BlockHashes) -> tuple[Int64Array, int | None]:
        """Return the labels of the full blocks, and the id of a partial last block."""
        if hashes.block_size != self._block_size or "block ids" not in self._kinds:
            self._use(prompt, kind="block ids", block_size=hashes.block_size)
        num_full, rest = divmod(hashes.num_prompt_tokens, hashes.block_size)
        ids = hashes.hash_ids.view(np.int64)
        if len(ids) == num_full:
            return ids, None
        if len(ids) == num_full + 1 and rest:
            return ids[:-1], int(hashes.hash_ids[-1])
        raise IncompleteError(
            f"{prompt.request.source}: {len(ids)} block ids for {hashes.num_prompt_tokens} tokens; "
            f"expected {num_full}{f' or {num_full + 1}' if rest else ''} "
            f"of {hashes.block_size} tokens"
        )

    def _labels(self, prompt: Prompt, token_ids: TokenArray) -> tuple[Int64Array, Int64Array, int]:
        """Return both halves of the blocks' labels, and the number of answer tokens among them."""
        self._use(prompt, kind="tokens", block_size=self._block_size)
        num_generated = 0
        answer = prompt.generated_token_ids
        if self._cache_generated and answer is not None and answer is not UNKNOWN:
            num_generated = max(0, len(answer) - 1)
            token_ids = np.concatenate([token_ids, answer[:num_generated]])
        session = prompt.request.session_id
        digests = self._digests.chain(
            token_ids, prompt.media, session=None if session is UNKNOWN else session
        )
        halves = np.frombuffer(digests, dtype="<i8").reshape(-1, 4)
        return np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]), num_generated

    def _use(self, prompt: Prompt, *, kind: str, block_size: int) -> None:
        if not self._kinds:
            self._block_size = block_size
        elif block_size != self._block_size:
            raise IncompleteError(
                f"{prompt.request.source}: blocks of {block_size} tokens in a log that began with "
                f"blocks of {self._block_size}; expected one block size",
                hint="analyze the logs one by one",
            )
        self._kinds.add(kind)

    def _flush(self) -> None:
        if not self._low:
            return
        lengths = [len(low) for low in self._low]
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        high: Int64Array | None = None
        if any(part is not None for part in self._high):
            high = np.concatenate(
                [
                    np.zeros(length, dtype=np.int64) if part is None else part
                    for part, length in zip(self._high, lengths, strict=True)
                ]
            )
        low = np.concatenate(self._low)
        self._ends.append(self._tree.insert(low, high, offsets[:-1], offsets[1:]))
        self._low, self._high, self._num_waiting_blocks = [], [], 0
