"""Dynamo's router hashes: XXH3-64 over a block's tokens, and the sequence hash over blocks.

Only the router's index uses them, no KV is named by them. A block's own hash has no parent; the
sequence hash chains them. Verified on ai-dynamo-runtime 1.6.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import xxhash

from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    full_block_ends,
    overlapping,
)
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_ALGORITHM: Final = "xxh3-64"
_SEED: Final = 1337
_NAMESPACE_SEED: Final = 1
_MASK: Final = 2**64 - 1


def router_seed(lora_name: str | None, namespace: str | None) -> int:
    """Return the seed of a block's hash; an empty name is none."""
    seed = _SEED
    if lora_name:
        seed += xxhash.xxh3_64_intdigest(lora_name.encode("utf-8"), seed=0)
    if namespace:
        seed += xxhash.xxh3_64_intdigest(namespace.encode("utf-8"), seed=_NAMESPACE_SEED)
    return seed & _MASK


def block_hashes(
    token_ids: Sequence[int],
    block_size: int,
    *,
    seed: int,
    media: Sequence[Sequence[int]] = (),
    is_eagle: bool = False,
) -> list[int]:
    """Return the unsigned 64-bit hash of each full block.

    `media` are each block's 64-bit media hashes. With `is_eagle` a block is hashed with the token
    after it, and exists only once that token does.
    """
    try:
        ids = np.array(token_ids, dtype=np.uint32)
    except OverflowError:
        raise UsageError("a token id is negative or above 32 bits") from None
    data = ids.astype("<u4").tobytes()
    width = block_size + 1 if is_eagle else block_size
    hashes = []
    for end in full_block_ends(len(ids) - (width - block_size), block_size):
        place = end // block_size - 1
        start = end - block_size
        block = data[start * 4 : (start + width) * 4]
        if place < len(media) and media[place]:
            block += struct.pack(f"<{len(media[place])}Q", *sorted(media[place]))
        hashes.append(int(xxhash.xxh3_64_intdigest(block, seed=seed)))
    return hashes


def sequence_hashes(hashes: Sequence[int]) -> list[int]:
    """Return the chained hash of each block: the first is the block's own."""
    chained: list[int] = []
    for value in hashes:
        if chained:
            value = xxhash.xxh3_64_intdigest(struct.pack("<2Q", chained[-1], value), seed=_SEED)
        chained.append(value)
    return chained


def _media_of_blocks(options: ChainOptions, num_tokens: int, block_size: int) -> list[list[int]]:
    if not options.media:
        return []
    return [
        [_media_hash(span.identifier) for span in overlapping(options.media, end - block_size, end)]
        for end in full_block_ends(num_tokens, block_size)
    ]


def _media_hash(identifier: str) -> int:
    if not identifier.isascii() or not identifier.isdigit() or int(identifier) > _MASK:
        raise UsageError(
            "the router names media by unsigned 64-bit numbers; an identifier here is none"
        )
    return int(identifier)


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    hashes = block_hashes(
        token_ids,
        block_size,
        seed=router_seed(options.lora_name, options.cache_salt),
        media=_media_of_blocks(options, len(token_ids), block_size),
        is_eagle=options.is_bigram,
    )
    return HashedChain(
        root="none",
        algorithm=_ALGORITHM,
        blocks=tuple(
            ChainedBlock(digest=f"{chained:016x}", published=str(value), end=end)
            for chained, value, end in zip(
                sequence_hashes(hashes),
                hashes,
                range(block_size, (len(hashes) + 1) * block_size, block_size),
                strict=False,
            )
        ),
    )


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    return "none"


RECIPE = ChainRecipe(title="Dynamo router hashes", hash_blocks=_hash_blocks, root_of=_root_of)
