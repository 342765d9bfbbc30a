"""Requests of traces that give a prompt as ids of blocks: what their formats share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.request import BlockHashes, LengthOnly, PromptInput
from prefixaudit.logs._fields import known_count
from prefixaudit.logs._json_lines import RecordError

_TWO_TO_64: Final = 2**64


def block_ids(value: Any, name: str) -> NDArray[np.uint64]:
    """Return a list of block ids as a read-only uint64 array.

    Signed 64-bit hashes are taken by their bits. Raises RecordError for anything else.
    """
    if not isinstance(value, list) or set(map(type, value)) - {int}:
        raise RecordError("bad-hash-ids", f"`{name}` is not a list of whole numbers")
    if value and (min(value) < -(2**63) or max(value) >= _TWO_TO_64):
        raise RecordError("bad-hash-ids", f"`{name}` holds a number of more than 64 bits")
    ids = np.array([item % _TWO_TO_64 for item in value], dtype=np.uint64)
    ids.flags.writeable = False
    return ids


def whole_number(record: Mapping[str, Any], *names: str) -> int:
    """Return the first of these fields that is a count. Raises RecordError where none is."""
    for name in names:
        count = known_count(record, name)
        if isinstance(count, int):
            return count
    raise RecordError("no-prompt", f"`{names[0]}` is missing or no whole number of 0 or more")


def blocks_prompt(
    ids: NDArray[np.uint64], block_size: int, num_prompt_tokens: int, name: str
) -> PromptInput:
    """Return the prompt of these blocks, or its length alone where there are no ids at all.

    The last id may stand for a partial block. Raises RecordError where the number of ids doesn't
    fit the length.
    """
    if not len(ids):
        return LengthOnly(num_prompt_tokens=num_prompt_tokens)
    if len(ids) not in (num_prompt_tokens // block_size, -(-num_prompt_tokens // block_size)):
        raise RecordError(
            "id-count",
            f"`{name}` holds {len(ids)} ids for {num_prompt_tokens} tokens; "
            f"{-(-num_prompt_tokens // block_size)} were expected for blocks of "
            f"{block_size} tokens",
        )
    return BlockHashes(hash_ids=ids, block_size=block_size, num_prompt_tokens=num_prompt_tokens)


def scoped(ids: NDArray[np.uint64], scope: bytes) -> NDArray[np.uint64]:
    """Return ids that count within a scope (a conversation) as ids that are its own in the log.

    Two ids of different scopes are equal with the chance of two random 64-bit numbers.
    """
    import hashlib

    seed = int.from_bytes(hashlib.blake2b(scope, digest_size=8).digest(), "little")
    # splitmix64, over the id and the scope's own random number
    with np.errstate(over="ignore"):
        mixed = ids * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    mixed.flags.writeable = False
    return mixed
