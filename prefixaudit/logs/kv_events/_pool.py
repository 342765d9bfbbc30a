"""KV events replayed: the blocks that a pool holds at the end, as prefixes of prompts.

Prefixes come in the order in which their last blocks were stored or reported, the most recent one
last, so that a simulation that takes them in this order has the pool's recency. Only stores are
published, no hits: a prefix that was read a moment ago but stored long ago stands early.

Events name a block's extra keys without saying what they are: an adapter's name and a salt look
alike. So the adapter comes from fields of its own, and what else is in the keys stays unnamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from prefixaudit.core.request import Request, Source, TokenArray, TokenIds
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.errors import IncompleteError
from prefixaudit.logs._fields import shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs.kv_events._records import (
    BlockHash,
    Cleared,
    Removed,
    Stored,
    Unreadable,
    events_of,
)

_FULL_ATTENTION: Final = "full_attention"
_Key: TypeAlias = tuple[int | None, BlockHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrefix:
    """A run of resident blocks from the start of a prompt on; no other one continues it.

    token_ids    uint32, whole blocks
    num_new_tokens  of these, how many stand in no prefix before it
    extra_keys   what else is in the blocks' hashes: one entry a block, None where it's not logged
    lora_name, lora_id  the adapter, where the events say it
    """

    token_ids: TokenArray
    num_new_tokens: int
    lora_name: Known[str]
    lora_id: Known[int]
    extra_keys: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContents:
    """What a pool holds at the end of a dump.

    prefixes     least recently stored first
    num_blocks   resident blocks of the pool's own medium and main group, of which
    num_unrooted_blocks     follow blocks that were stored before the dump began: their tokens
                            aren't all known
    num_unreachable_blocks  follow blocks that were removed: no lookup gets to them
    num_other_media_blocks  resident on other media only (CPU, disk)
    num_unreadable  messages and events that couldn't be read, by kind
    """

    path: str
    block_size: int
    prefixes: tuple[StoredPrefix, ...]
    num_blocks: int
    num_unrooted_blocks: int
    num_unreachable_blocks: int
    num_other_media_blocks: int
    num_events: int
    num_unreadable: Mapping[str, int]

    def requests(self) -> Iterator[Request]:
        """Yield a request a prefix, in order: what to run before a log to have the pool warm.

        The salt is unknown; so is the adapter's path and revision.
        """
        for number, prefix in enumerate(self.prefixes, 1):
            name = prefix.lora_name
            if name is UNKNOWN and prefix.lora_id is None:
                name = None
            # An extra key that isn't the adapter's name is a salt, an image or embeddings.
            yield Request(
                request_id=f"warm-{number}",
                source=Source(self.path, 1),
                prompt=TokenIds(token_ids=prefix.token_ids),
                identity=shared_identity(
                    {
                        "lora_name": name,
                        "cache_salt": UNKNOWN if _has_more_keys(prefix) else None,
                    }
                ),
                generated=None,
            )


def _has_more_keys(prefix: StoredPrefix) -> bool:
    if prefix.extra_keys is None:
        return True
    own = {prefix.lora_name, prefix.lora_id}
    return any(
        key not in own if isinstance(key, int | str) else True
        for keys in prefix.extra_keys
        if isinstance(keys, list)
        for key in keys
    )


def read_pool_contents(path: str, options: ReadOptions | None = None) -> PoolContents:
    """Return what the pool of a dump of KV events holds at its end.

    Raises IncompleteError where the file can't be read or has no event.
    """
    file = LogFile(path, options or ReadOptions())
    pool = _Pool()
    for event in events_of(file):
        pool.take(event)
    if not pool.num_events:
        raise IncompleteError(
            f"{file.path}: no KV events; BlockStored, BlockRemoved and AllBlocksCleared as msgpack "
            "or JSON lines were expected"
        )
    return pool.contents(file.path)


@dataclass(slots=True)
class _Block:
    """Where a block's tokens stand (in its event's array), and a bit for each medium it is on."""

    parent: _Key | None
    event: Stored
    place: int
    order: int
    media: int = 0


class _Pool:
    """The blocks of all groups and media while events are replayed."""

    def __init__(self) -> None:
        self.num_events = 0
        self._num_unreadable: Counter[str] = Counter()
        self._blocks: dict[_Key, _Block] = {}
        self._group_kinds: dict[int | None, str | None] = {}
        self._bits: dict[str | None, int] = {None: 1}
        self._removed: set[_Key] = set()
        self._order = 0
        self._sizes: Counter[int] = Counter()

    def take(self, event: Stored | Removed | Cleared | Unreadable) -> None:
        """Replay one event."""
        match event:
            case Unreadable():
                self._num_unreadable[event.kind] += 1
                return
            case Cleared():
                self._blocks.clear()
                self._removed.clear()
            case Removed():
                for block_hash in event.hashes:
                    self._remove((event.group, block_hash), event.medium)
            case Stored():
                self._store(event)
        self.num_events += 1

    def _remove(self, key: _Key, medium: str | None) -> None:
        block = self._blocks.get(key)
        if block is None:
            return
        if medium is None:
            block.media = 0
        else:
            # Stored without a medium's name, it can only be this one.
            block.media &= ~(self._bit(medium) | self._bit(None))
        if not block.media:
            del self._blocks[key]
            self._removed.add(key)

    def _bit(self, medium: str | None) -> int:
        return self._bits.setdefault(medium, 1 << min(len(self._bits), 60))

    def _store(self, event: Stored) -> None:
        self._group_kinds.setdefault(event.group, event.group_kind)
        parent = None if event.parent is None else (event.group, event.parent)
        self._sizes[event.block_size] += 1
        bit = self._bit(event.medium)
        for place, block_hash in enumerate(event.hashes):
            key = (event.group, block_hash)
            self._order += 1
            block = self._blocks.get(key)
            if block is None:
                block = _Block(parent, event, place, self._order)
                # Last in the table, as the latest one.
                self._blocks[key] = block
            block.order = self._order
            block.media |= bit
            parent = key

    def contents(self, path: str) -> PoolContents:
        """Return what is resident now."""
        group = self._main_group()
        media = Counter(
            medium
            for (of, _), block in self._blocks.items()
            if of == group
            for medium, bit in self._bits.items()
            if block.media & bit
        )
        wanted = self._bit(_main_medium(media)) | self._bit(None)
        own = {
            key: block
            for key, block in self._blocks.items()
            if key[0] == group and block.media & wanted
        }
        others = sum(of == group for of, _ in self._blocks) - len(own)
        roots = self._rooted(own)
        num_unrooted = sum(state == "unrooted" for state in roots.values())
        num_unreachable = sum(state == "unreachable" for state in roots.values())
        return PoolContents(
            path=path,
            block_size=self._sizes.most_common(1)[0][0] if self._sizes else 0,
            prefixes=tuple(_prefixes(own, roots)),
            num_blocks=len(own),
            num_unrooted_blocks=num_unrooted,
            num_unreachable_blocks=num_unreachable,
            num_other_media_blocks=others,
            num_events=self.num_events,
            num_unreadable=dict(self._num_unreadable),
        )

    def _main_group(self) -> int | None:
        """Return the group of full attention, whose blocks every hit needs; else the first."""
        for group, kind in self._group_kinds.items():
            if kind == _FULL_ATTENTION:
                return group
        known = [group for group in self._group_kinds if group is not None]
        return None if None in self._group_kinds or not known else min(known)

    def _rooted(self, own: Mapping[_Key, _Block]) -> dict[_Key, str]:
        """Say of each block whether all before it are resident too, and if not why."""
        states: dict[_Key, str] = {}
        for start in own:
            path: list[_Key] = []
            key: _Key | None = start
            state = "rooted"
            seen: set[_Key] = set()
            while key is not None:
                if key in states:
                    state = states[key]
                    break
                if key in seen or key not in own:
                    # Gone, or never stored in this dump.
                    was_stored = key in seen or key in self._blocks or key in self._removed
                    state = "unreachable" if was_stored else "unrooted"
                    break
                seen.add(key)
                path.append(key)
                key = own[key].parent
            for passed in path:
                states[passed] = state
        return states


def _main_medium(media: Counter[str | None]) -> str | None:
    """Return the medium that lookups read from: the GPU where it's named, else the commonest."""
    for medium in media:
        if medium is not None and medium.upper().startswith("GPU"):
            return medium
    return media.most_common(1)[0][0] if media else None


def _prefixes(own: Mapping[_Key, _Block], states: Mapping[_Key, str]) -> Iterator[StoredPrefix]:
    rooted = {key: block for key, block in own.items() if states[key] == "rooted"}
    parents = {block.parent for block in rooted.values()}
    leaves = sorted(
        ((block.order, key) for key, block in rooted.items() if key not in parents),
        key=lambda item: item[0],
    )
    done: set[_Key] = set()
    for _, leaf in leaves:
        chain: list[_Key] = []
        key: _Key | None = leaf
        while key is not None:
            chain.append(key)
            key = rooted[key].parent
        chain.reverse()
        blocks = [rooted[key] for key in chain]
        parts = [
            block.event.token_ids[
                block.place * block.event.block_size : (block.place + 1) * block.event.block_size
            ]
            for block in blocks
        ]
        ids = np.concatenate(parts)
        ids.flags.writeable = False
        num_new = sum(len(part) for key, part in zip(chain, parts, strict=True) if key not in done)
        done.update(chain)
        has_keys = all(block.event.extra_keys is not None for block in blocks)
        yield StoredPrefix(
            token_ids=ids,
            num_new_tokens=num_new,
            lora_name=blocks[-1].event.lora_name,
            lora_id=blocks[-1].event.lora_id,
            extra_keys=tuple((block.event.extra_keys or ())[block.place] for block in blocks)
            if has_keys
            else None,
        )
