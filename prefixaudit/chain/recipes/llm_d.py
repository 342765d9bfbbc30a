"""llm-d's index keys: FNV-1a-64 over canonical CBOR of [parent, tokens, extra].

They only route: a collision sends a request to a replica without its blocks. FNV-1a has no
maintained library; it is the loop below. The root equals the value that llm-d's own end-to-end test
publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    full_block_ends,
)
from prefixaudit.chain.recipes._vllm_hash import canonical_cbor
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_ALGORITHM: Final = "fnv1a-64"
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1


def fnv1a_64(data: bytes) -> int:
    """Return the FNV-1a hash of `data` (unsigned 64 bit)."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value


def index_root(seed: str, name: str) -> int:
    """Return the parent of block 0 for a model or adapter `name`."""
    return fnv1a_64(canonical_cbor([fnv1a_64(seed.encode("utf-8")), None, name]))


def index_keys(
    token_ids: Sequence[int], block_size: int, *, root: int, extra: Sequence[Any] = ()
) -> list[int]:
    """Return the key of each full block; `extra` has each block's third element, None if absent."""
    keys = []
    parent = root
    for end in full_block_ends(len(token_ids), block_size):
        place = end // block_size - 1
        third = extra[place] if place < len(extra) else None
        parent = fnv1a_64(canonical_cbor([parent, list(token_ids[end - block_size : end]), third]))
        keys.append(parent)
    return keys


def _root(options: ChainOptions) -> int:
    if options.root is not None:
        try:
            return int(options.root)
        except ValueError:
            raise UsageError("the root is not written as expected; expected an integer") from None
    name = options.lora_name or options.model
    if name is None:
        raise UsageError("the index starts from the name of the model or adapter; expected one")
    return index_root(options.seed or "", name)


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    if options.media:
        raise UsageError("how this index writes media in its key is not established")
    root = _root(options)
    keys = index_keys(token_ids, block_size, root=root)
    return HashedChain(
        root=str(root),
        algorithm=_ALGORITHM,
        blocks=tuple(
            ChainedBlock(digest=f"{key:016x}", published=str(key), end=(place + 1) * block_size)
            for place, key in enumerate(keys)
        ),
    )


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    return str(_root(options))


RECIPE = ChainRecipe(title="llm-d index keys", hash_blocks=_hash_blocks, root_of=_root_of)
