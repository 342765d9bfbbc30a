"""What both modes of LMCache share: values in place of media placeholders, and key texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from prefixaudit.chain.recipes._recipe import form
from prefixaudit.core.engine import HashFacts
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.errors import UsageError

_VALUE_BITS: Final = 31
_VALUE_BYTES: Final = 4
_NARROW_MASK: Final = 0xFFFF
_FORBIDDEN_IN_SALT: Final = frozenset("@/\\\0")
_MAX_SALT_LENGTH: Final = 128


def placeholder_values(identifier: str, num_tokens: int) -> list[int]:
    """Return the 31-bit values that replace an item's placeholder tokens (from 0.5.5).

    Each comes from the identifier and its place: 4 bytes of SHA-256(SHA-256(identifier) || n) for
    each run of 8 places n.
    """
    seed = hashlib.sha256(identifier.encode("utf-8")).digest()
    values: list[int] = []
    counter = 0
    while len(values) < num_tokens:
        digest = hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()
        values += [
            int.from_bytes(digest[at : at + _VALUE_BYTES], "big") & (2**_VALUE_BITS - 1)
            for at in range(0, len(digest), _VALUE_BYTES)
        ]
        counter += 1
    return values[:num_tokens]


def narrow_placeholder_value(identifier: str) -> int:
    """Return the 16-bit value that replaces all of an item's placeholder tokens (up to 0.5.4)."""
    try:
        return int(identifier, 16) & _NARROW_MASK
    except ValueError:
        raise UsageError("this release takes media identifiers in hexadecimal only") from None


def substituted(
    token_ids: Sequence[int], media: Sequence[MediaSpan], facts: HashFacts
) -> tuple[int, ...]:
    """Return the token ids with the values of the media in place of their placeholders."""
    if not media:
        return tuple(token_ids)
    is_narrow = form(facts, "media", ("16-bit", "31-bit")) == "16-bit"
    tokens = list(token_ids)
    for span in media:
        end = min(span.offset + span.num_tokens, len(tokens))
        if span.offset >= end:
            continue
        length = end - span.offset
        if is_narrow:
            tokens[span.offset : end] = [narrow_placeholder_value(span.identifier)] * length
        else:
            tokens[span.offset : end] = placeholder_values(span.identifier, length)
    return tuple(tokens)


def cache_engine_key(
    chunk_hash: int,
    *,
    model: str,
    world_size: int,
    worker_id: int,
    kv_dtype: str,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Return the key text of a chunk in the in-process mode."""
    parts = [f"{model}@{world_size}@{worker_id}@{chunk_hash:x}@{kv_dtype}"]
    parts += [f"{name}%{value}" for name, value in (tags or {}).items()]
    return "@".join(parts)


def salt_problem(cache_salt: str) -> str | None:
    """Say why the multiprocess mode refuses a salt, None if it takes it (CVE-2026-105756)."""
    if _FORBIDDEN_IN_SALT & set(cache_salt):
        return "holds one of @ / \\ NUL"
    if len(cache_salt) > _MAX_SALT_LENGTH:
        return f"is longer than {_MAX_SALT_LENGTH} characters"
    return None
