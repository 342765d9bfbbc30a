"""LMCache's chunk hashes in its server: BLAKE3(prefix || tokens as big-endian u32).

The first prefix is the hash of the chunk (0,) under prefix 0. With another algorithm F is vLLM's
function of that name over (prefix, tokens, None), and the first prefix vLLM's root.
`engines/lmcache.toml` has the forms by release.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import blake3

from prefixaudit.chain.recipes._lmcache import substituted
from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    chosen_algorithm,
    form,
    full_block_ends,
    random_root,
)
from prefixaudit.chain.recipes._vllm_hash import drawn_root, hash_function
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_FIRST_PREFIX: Final = bytes(8)
_FIRST_TOKENS: Final = (0,)


def blake3_chunk(prefix: bytes, tokens: Sequence[int]) -> bytes:
    """Return the 32-byte digest of a chunk. UsageError for an id that isn't 32 bits wide."""
    try:
        data = struct.pack(f">{len(tokens)}I", *tokens)
    except struct.error:
        raise UsageError("a token id is negative or above 32 bits") from None
    return bytes(blake3.blake3(prefix + data).digest())


def _root(facts: HashFacts, options: ChainOptions) -> bytes | int | None:
    algorithm = chosen_algorithm(facts, options)
    if options.root is not None:
        try:
            return int(options.root) if algorithm == "builtin" else bytes.fromhex(options.root)
        except ValueError:
            raise UsageError("the root is not written as expected") from None
    if algorithm == "blake3":
        return blake3_chunk(_FIRST_PREFIX, _FIRST_TOKENS)
    return drawn_root(facts, options, algorithm, form(facts, "hash", ("integer", "digest")))


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    algorithm = chosen_algorithm(facts, options)
    root = _root(facts, options)
    if root is None:
        raise random_root(facts)
    step: Callable[[bytes | int, tuple[int, ...]], bytes | int]
    if algorithm == "blake3":
        step = _blake3_step
    else:
        function = hash_function(algorithm, form(facts, "hash", ("integer", "digest")), options)

        def step(prefix: bytes | int, chunk: tuple[int, ...]) -> bytes | int:
            return function((prefix, chunk, None))

    tokens = substituted(token_ids, options.media, facts)
    prefix = root
    blocks = []
    for end in full_block_ends(len(tokens), block_size):
        prefix = step(prefix, tokens[end - block_size : end])
        text = _bytes(prefix).hex()
        blocks.append(ChainedBlock(digest=text, published=text, end=end))
    return HashedChain(root=_text(root), algorithm=algorithm, blocks=tuple(blocks))


def _blake3_step(prefix: bytes | int, chunk: tuple[int, ...]) -> bytes:
    return blake3_chunk(_bytes(prefix), chunk)


def _bytes(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(8, "big", signed=True)


def _text(value: bytes | int) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    root = _root(facts, options)
    return None if root is None else _text(root)


RECIPE = ChainRecipe(
    title="LMCache chunk hashes, multiprocess", hash_blocks=_hash_blocks, root_of=_root_of
)
