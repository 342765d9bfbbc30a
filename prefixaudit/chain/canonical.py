"""The canonical chain: SHA-256 over an encoding in which no two different inputs look alike.

    h_i = SHA-256(h_{i-1} || block_i),  h_{-1} = SHA-256(root)

    block  number of tokens, the tokens, number of media, then each medium that overlaps the block:
           its offset relative to the block's first token (negative when it began earlier), its
           number of tokens, its identifier
    root   without an identity, a constant; with one, each field's name and value in order of name

Every number is little-endian: counts and lengths uint64, tokens uint32, offsets int64. Every text
is UTF-8 (lone surrogates as their three bytes) behind its length in bytes. A field's value starts
with a byte that tells UNKNOWN (0), None (1) and text (2) apart. Only full blocks have a hash.

Nothing here knows an engine; `recipes` has their chains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.core.request import TokenArray
from prefixaudit.core.unknown import UNKNOWN, Known

DIGEST_BYTES: Final = 32
_NO_MEDIA: Final = bytes(8)


def _count(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return _count(len(raw)) + raw


def _value(value: Known[str]) -> bytes:
    if value is UNKNOWN:
        return b"\x00"
    if value is None:
        return b"\x01"
    return b"\x02" + _text(value)


def encode_identity(identity: Identity) -> bytes:
    """Return the root that stands for an identity; different identities have different roots."""
    fields = b"".join(
        _text(name) + _value(getattr(identity, name)) for name in sorted(IDENTITY_FIELDS)
    )
    return _text("prefixaudit identity 1") + _count(len(IDENTITY_FIELDS)) + fields


def root_digest(identity: Identity | None) -> bytes:
    """Return h_{-1} (32 bytes): of an identity, or of the chain over tokens and media alone."""
    root = _text("prefixaudit tokens 1") if identity is None else encode_identity(identity)
    return hashlib.sha256(root).digest()


def encode_media(media: Sequence[MediaSpan], start: int, end: int) -> bytes:
    """Return the part of a block's encoding that names the media overlapping [start, end)."""
    inside = sorted(
        (span.offset - start, span.num_tokens, span.identifier)
        for span in media
        if span.offset < end and span.offset + span.num_tokens > start
    )
    return _count(len(inside)) + b"".join(
        offset.to_bytes(8, "little", signed=True) + _count(num_tokens) + _text(identifier)
        for offset, num_tokens, identifier in inside
    )


def extend_chain(
    digest: bytes,
    token_ids: TokenArray,
    block_size: int,
    *,
    first_block: int = 0,
    media: Sequence[MediaSpan] = (),
) -> list[bytes]:
    """Return the digests (32 bytes each) of the full blocks from `first_block` on.

    `digest` is the one of the block before, the root's for block 0. `token_ids` is the whole
    prompt; positions of `media` count from its start. Raises ValueError for a block size below 1.
    """
    if block_size < 1:
        raise ValueError(f"block size {block_size}; expected 1 or more")
    num_blocks = len(token_ids) // block_size
    raw = np.ascontiguousarray(token_ids[first_block * block_size :], dtype="<u4").tobytes()
    head = _count(block_size)
    step = 4 * block_size
    sha256 = hashlib.sha256
    digests = []
    if not media:
        for place in range(0, (num_blocks - first_block) * step, step):
            digest = sha256(digest + head + raw[place : place + step] + _NO_MEDIA).digest()
            digests.append(digest)
        return digests
    for block in range(first_block, num_blocks):
        place = (block - first_block) * step
        tail = encode_media(media, block * block_size, (block + 1) * block_size)
        digest = sha256(digest + head + raw[place : place + step] + tail).digest()
        digests.append(digest)
    return digests


def canonical_chain(
    token_ids: TokenArray,
    block_size: int,
    identity: Identity | None = None,
    media: Sequence[MediaSpan] = (),
) -> list[bytes]:
    """Return the canonical digests (32 bytes each) of a prompt's full blocks.

    With an identity the chain is the complete key; without one it covers tokens and media alone,
    as the labels of a BlockTrace do. Raises ValueError for a block size below 1.
    """
    return extend_chain(root_digest(identity), token_ids, block_size, media=media)
