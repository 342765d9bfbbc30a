"""The plain reference chain and its copy-on-write blocks: no engine, no versions.

    h_i = SHA-256(h_{i-1} || model_revision || 0x00 || adapter || 0x00 || tokens)

Tokens are uint32, little-endian; h_{-1} is the four ASCII bytes `root`, both texts are UTF-8, the
adapter is `none` where there is none. Only full blocks have a hash. It is easy to restate in any
language, which is its point; it isn't the canonical chain, since a 0x00 within a text would make
two identities alike (such a text is refused here) and an adapter may be called `none`.

Blocks are shared by reference counts; writing to a block that is shared makes a private copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    full_block_ends,
)
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_ALGORITHM: Final = "sha256"
_ROOT: Final = b"root"
_NO_ADAPTER: Final = "none"
_LARGEST_TOKEN_ID: Final = 2**32 - 1


def _field(name: str, value: str) -> bytes:
    if "\x00" in value:
        raise UsageError(
            f"the {name} holds a NUL character; the reference chain can't tell where it ends"
        )
    return value.encode("utf-8", "surrogatepass") + b"\x00"


def _root(options: ChainOptions) -> bytes:
    if options.root is None:
        return _ROOT
    try:
        return bytes.fromhex(options.root)
    except ValueError:
        raise UsageError("the root is not written as expected; expected hex digits") from None


def _root_of(_: HashFacts, options: ChainOptions) -> str:
    return _root(options).hex()


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, _: HashFacts, options: ChainOptions
) -> HashedChain:
    if options.model_revision is None:
        raise UsageError("the reference chain needs a model revision")
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) <= _LARGEST_TOKEN_ID:
        raise UsageError("a token id lies outside 0 to 4294967295, what 32 bits hold")
    adapter = _NO_ADAPTER if options.lora_name is None else options.lora_name
    identity = _field("model revision", options.model_revision) + _field("adapter", adapter)
    digest = _root(options)
    blocks = []
    for end in full_block_ends(len(token_ids), block_size):
        tokens = np.array(token_ids[end - block_size : end], dtype="<u4").tobytes()
        digest = hashlib.sha256(digest + identity + tokens).digest()
        blocks.append(ChainedBlock(digest=digest.hex(), published=digest.hex(), end=end))
    return HashedChain(root=_root(options).hex(), algorithm=_ALGORITHM, blocks=tuple(blocks))


class SharedBlocks:
    """Blocks of tokens that several sequences hold; who writes to a shared one gets a copy.

    Blocks have numbers from 0, in order of creation. A block that nobody holds any more is gone.
    """

    def __init__(self) -> None:
        self._token_ids: dict[int, list[int]] = {}
        self._num_references: dict[int, int] = {}
        self._next_block = 0
        self.num_private_copies = 0

    def create(self, token_ids: Sequence[int]) -> int:
        """Make a block that its creator holds, and return its number."""
        block = self._next_block
        self._next_block += 1
        self._token_ids[block] = list(token_ids)
        self._num_references[block] = 1
        return block

    def share(self, block: int) -> int:
        """Hold a block once more, and return its number. Raises KeyError for a block gone."""
        self._num_references[block] += 1
        return block

    def release(self, block: int) -> None:
        """Hold a block once less. Raises KeyError for a block gone."""
        self._num_references[block] -= 1
        if not self._num_references[block]:
            del self._num_references[block], self._token_ids[block]

    def write(self, block: int, index: int, token_id: int) -> int:
        """Write one token and return the block that has it: a private copy if `block` is shared.

        Raises KeyError for a block gone, IndexError for a place outside the block.
        """
        token_ids = self._token_ids[block]
        if not 0 <= index < len(token_ids):
            raise IndexError(f"token {index} of a block of {len(token_ids)}")
        if self._num_references[block] > 1:
            self.release(block)
            block = self.create(token_ids)
            self.num_private_copies += 1
        self._token_ids[block][index] = token_id
        return block

    def token_ids(self, block: int) -> tuple[int, ...]:
        """Return a block's tokens. Raises KeyError for a block gone."""
        return tuple(self._token_ids[block])

    def num_references(self, block: int) -> int:
        """Return by how many a block is held, 0 for a block gone."""
        return self._num_references.get(block, 0)


RECIPE = ChainRecipe(
    title="Reference chain: SHA-256 over revision, adapter and tokens",
    hash_blocks=_hash_blocks,
    root_of=_root_of,
)
