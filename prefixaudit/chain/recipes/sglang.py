"""SGLang's page hashes, byte for byte: SHA256(parent digest || tokens as little-endian u32).

They name pages in the HiCache tiers and in events; the tree in the process compares tokens, not
hashes. With an EAGLE-like drafter a page holds pairs of neighbouring tokens. `engines/sglang.toml`
has the forms by release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    form,
    full_block_ends,
)
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_ALGORITHM: Final = "sha256"
_STORAGE_TAG: Final = b"sglang-cache-namespace-v1"
_EVENT_TAG: Final = b"sglang-cache-salt-v1\0"
# An odd number of bytes tells a page with ids above 32 bits from all others.
_WIDE_TAG: Final = b"\xff"


def storage_seed(extra_key: str | None, cache_salt: str | None) -> bytes | None:
    """Return the parent of page 0 in a namespace; None without a namespace.

    A presence byte and the length keep absent, empty and joined parts apart.
    """
    if extra_key is None and cache_salt is None:
        return None
    digest = hashlib.sha256(_STORAGE_TAG)
    for part in (extra_key, cache_salt):
        if part is None:
            digest.update(b"\x00")
        else:
            encoded = part.encode("utf-8")
            digest.update(b"\x01" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()


def page_digests(
    token_ids: Sequence[int],
    page_size: int,
    *,
    parent: bytes | None,
    is_bigram: bool,
    takes_wide_ids: bool,
) -> list[bytes]:
    """Return the SHA-256 digest of each full page. Pairs count as one element of a page."""
    try:
        ids = np.array(token_ids, dtype=np.uint64)
    except OverflowError:
        raise UsageError("a token id is negative or above 64 bits") from None
    if is_bigram:
        ids = np.stack((ids[:-1], ids[1:]), axis=1) if len(ids) > 1 else ids[:0]
    is_wide = ids > np.uint64(2**32 - 1)
    if is_wide.any() and not takes_wide_ids:
        raise UsageError("a token id is above 32 bits, which this release can't hash")
    narrow = ids.astype("<u4")
    wide = ids.astype("<u8")
    digests = []
    digest = parent if parent is not None else b""
    for end in full_block_ends(len(ids), page_size):
        page = slice(end - page_size, end)
        data = _WIDE_TAG + wide[page].tobytes() if is_wide[page].any() else narrow[page].tobytes()
        digest = hashlib.sha256(digest + data).digest()
        digests.append(digest)
    return digests


def signed_64(digest: bytes) -> int:
    """Return the first 8 bytes of a digest as a signed big-endian integer."""
    return int.from_bytes(digest[:8], "big", signed=True)


def _storage_parent(facts: HashFacts, options: ChainOptions) -> bytes | None:
    if options.root is not None:
        try:
            return bytes.fromhex(options.root)
        except ValueError:
            raise UsageError("the root is not written as expected; expected hex digits") from None
    if form(facts, "namespace", ("none", "seed")) == "none":
        return None
    return storage_seed(options.extra_key, options.cache_salt)


def _published(
    token_ids: Sequence[int],
    page_size: int,
    facts: HashFacts,
    options: ChainOptions,
    digests: list[bytes],
) -> list[str]:
    """Return the block ids of events: they leave extra_key out, and old ones aren't chained."""
    events = form(facts, "events", ("page-hash", "digest", "salted-digest"))
    if events == "page-hash":
        if options.is_bigram:
            units: list[object] = list(pairwise(token_ids))
        else:
            units = list(token_ids)
        ends = full_block_ends(len(units), page_size)
        return [str(hash(tuple(units[end - page_size : end]))) for end in ends]
    parent = None
    if events == "salted-digest" and options.cache_salt is not None:
        parent = hashlib.sha256(_EVENT_TAG + options.cache_salt.encode("utf-8")).digest()
    if parent != _storage_parent(facts, options):
        digests = page_digests(
            token_ids,
            page_size,
            parent=parent,
            is_bigram=options.is_bigram,
            takes_wide_ids=form(facts, "wide_ids", ("no", "yes")) == "yes",
        )
    return [str(signed_64(digest)) for digest in digests]


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    if options.media:
        raise UsageError(
            "SGLang hashes media as pad values in place of their placeholder ids",
            hint="Give the token ids with the pad values in them.",
        )
    parent = _storage_parent(facts, options)
    digests = page_digests(
        token_ids,
        block_size,
        parent=parent,
        is_bigram=options.is_bigram,
        takes_wide_ids=form(facts, "wide_ids", ("no", "yes")) == "yes",
    )
    published = _published(token_ids, block_size, facts, options, digests)
    return HashedChain(
        root="none" if parent is None else parent.hex(),
        algorithm=_ALGORITHM,
        blocks=tuple(
            ChainedBlock(digest=digest.hex(), published=name, end=(place + 1) * block_size)
            for place, (digest, name) in enumerate(zip(digests, published, strict=True))
        ),
    )


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    parent = _storage_parent(facts, options)
    return "none" if parent is None else parent.hex()


RECIPE = ChainRecipe(title="SGLang page hashes", hash_blocks=_hash_blocks, root_of=_root_of)
