"""Digests of recent prompts, so that what was hashed before isn't hashed again.

A prompt is looked for under its session and under its first 1, 2, 3, 4, 5, 6, 8, 10 … blocks, the
longest first. What is found only proposes: the tokens are compared, one by one, up to where they
part, and the digests of that part are taken over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash

from prefixaudit.chain.canonical import DIGEST_BYTES, extend_chain, root_digest
from prefixaudit.core.prefixes import common_length
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.core.request import TokenArray

Media = tuple[MediaSpan, ...]

# A prompt takes some kilobytes beside its tokens.
_MOST_PROMPTS: Final = 8_192


@dataclass(frozen=True, slots=True)
class _Remembered:
    token_ids: TokenArray
    media: Media
    digests: bytes
    keys: tuple[object, ...]


def _milestones(num_blocks: int) -> Iterator[int]:
    """Yield numbers of blocks up to `num_blocks`, each about a quarter above the one before."""
    milestone = 1
    while milestone <= num_blocks:
        yield milestone
        milestone += max(1, milestone // 4)


def _first_difference(first: Media, second: Media) -> int | None:
    """Return the position from which the media of two prompts differ, None if they don't."""
    ours = sorted(first, key=lambda span: (span.offset, span.num_tokens, span.identifier))
    theirs = sorted(second, key=lambda span: (span.offset, span.num_tokens, span.identifier))
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            return min(mine.offset, other.offset)
    shared = min(len(ours), len(theirs))
    rest = ours[shared:] or theirs[shared:]
    return rest[0].offset if rest else None


class DigestMemory:
    """Computes canonical chains over tokens and media, and remembers those of recent prompts."""

    def __init__(self, *, block_size: int, max_tokens: int) -> None:
        self._block_size = block_size
        self._max_tokens = max_tokens
        self._root = root_digest(None)
        self._remembered: OrderedDict[int, _Remembered] = OrderedDict()
        self._by_key: dict[object, int] = {}
        self._num_remembered_tokens = 0
        self._next_number = 0
        self.num_hashed_blocks = 0

    def chain(self, token_ids: TokenArray, media: Media, *, session: str | None) -> bytes:
        """Return the digests of the full blocks, 32 bytes each, one after the other."""
        num_blocks = len(token_ids) // self._block_size
        if not num_blocks:
            return b""
        token_ids = np.ascontiguousarray(token_ids, dtype=np.uint32)
        keys = self._keys(token_ids, num_blocks)
        known = b""
        for key in (("session", session) if session is not None else None, *reversed(keys)):
            number = None if key is None else self._by_key.get(key)
            if number is None:
                continue
            shared = self._shared(self._remembered[number], token_ids, media)
            if len(shared) > len(known):
                known = shared
            self._remembered.move_to_end(number)
            if key is not None and key in keys:
                break
        first_block = len(known) // DIGEST_BYTES
        digest = known[-DIGEST_BYTES:] or self._root
        new = extend_chain(
            digest,
            token_ids[: num_blocks * self._block_size],
            self._block_size,
            first_block=first_block,
            media=media,
        )
        self.num_hashed_blocks += len(new)
        digests = known + b"".join(new)
        names = (*keys, ("session", session)) if session is not None else keys
        self._remember(_Remembered(token_ids, media, digests, names))
        return digests

    def _keys(self, token_ids: TokenArray, num_blocks: int) -> tuple[object, ...]:
        """Return a key for each milestone, the shortest first."""
        state = xxhash.xxh3_128()
        keys = []
        before = 0
        for milestone in _milestones(num_blocks):
            state.update(token_ids[before * self._block_size : milestone * self._block_size].data)
            keys.append(state.intdigest())
            before = milestone
        return tuple(keys)

    def _shared(self, earlier: _Remembered, token_ids: TokenArray, media: Media) -> bytes:
        """Return the digests that a prompt shares with an earlier one."""
        length = common_length(earlier.token_ids, token_ids)
        if media or earlier.media:
            parted = _first_difference(earlier.media, media)
            length = length if parted is None else min(length, max(0, parted))
        num_blocks = length // self._block_size
        return earlier.digests[: num_blocks * DIGEST_BYTES]

    def _remember(self, prompt: _Remembered) -> None:
        if len(prompt.token_ids) > self._max_tokens:
            return
        for key in prompt.keys:
            self._by_key[key] = self._next_number
        self._remembered[self._next_number] = prompt
        self._next_number += 1
        self._num_remembered_tokens += len(prompt.token_ids)
        while (
            self._num_remembered_tokens > self._max_tokens or len(self._remembered) > _MOST_PROMPTS
        ):
            number, oldest = self._remembered.popitem(last=False)
            self._num_remembered_tokens -= len(oldest.token_ids)
            for key in oldest.keys:
                if self._by_key.get(key) == number:
                    del self._by_key[key]
