"""KV events out of a dump, whatever it is written as.

    batches   [ts, [event, …], rank] or {"ts": …, "events": […]}, or with topic and sequence number
              in front, as they came from the socket: [topic, seq, payload]
    events    ["BlockStored", hashes, parent, token_ids, block_size, lora_id, medium, lora_name,
              extra_keys, group_idx, kind, …]: arrays of vLLM (0.8 to 0.31), SGLang and LMCache;
              {"type": "BlockStored", "block_hashes": …, …}: maps of vLLM 0.33 and of JSON dumps

Messages stand one behind another (msgpack) or one a line (JSON). Hashes are whole numbers, bytes or
text; fields that an older release doesn't have are missing at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import TokenArray
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.errors import IncompleteError
from prefixaudit.logs._bytes import DamagedStreamError
from prefixaudit.logs._fields import token_ids
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._json_lines import RecordError, json_records

BlockHash: TypeAlias = int | bytes | str

_STORED_FIELDS: Final = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
    "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
_REMOVED_FIELDS: Final = ("block_hashes", "medium", "group_idx")
_MAX_MESSAGE_BYTES: Final = 2**28
_NAMES: Final = {
    "BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared",
    "CacheStoreEvent": "stored", "CacheRemoveEvent": "removed",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks that follow one another, the first one after `parent`."""

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    token_ids: TokenArray
    block_size: int
    lora_id: Known[int]
    lora_name: Known[str]
    medium: str | None
    extra_keys: tuple[Any, ...] | None
    group: int | None
    group_kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Blocks that left a medium."""

    hashes: tuple[BlockHash, ...]
    medium: str | None
    group: int | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks left."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message or event that isn't one."""

    kind: str


Event: TypeAlias = Stored | Removed | Cleared | Unreadable


def events_of(file: LogFile) -> Iterator[Event]:
    """Yield the events of a dump in their order."""
    for message in _messages(file):
        if isinstance(message, Unreadable):
            yield message
        else:
            yield from _events(message)


def _messages(file: LogFile) -> Iterator[Any]:
    blocks = file.peek()
    first = next(blocks, b"")
    if not first:
        raise IncompleteError(f"{file.path}: the file is empty; KV events were expected")
    is_json = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    yield from _json_messages(file) if is_json else _packed_messages(file)


def _json_messages(file: LogFile) -> Iterator[Any]:
    for item in json_records(file):
        yield item[1] if isinstance(item, tuple) else Unreadable(item.kind)


def _packed_messages(file: LogFile) -> Iterator[Any]:
    import msgpack

    unpacker = msgpack.Unpacker(
        raw=False,
        strict_map_key=False,
        unicode_errors="surrogateescape",
        max_buffer_size=_MAX_MESSAGE_BYTES,
    )
    num_bytes = num_read = 0
    try:
        for block in file.blocks():
            num_bytes += len(block)
            unpacker.feed(block)
            for message in unpacker:
                num_read = unpacker.tell()
                yield message
    except (ValueError, msgpack.UnpackException, msgpack.BufferFull, DamagedStreamError):
        # What follows can't be told apart any more.
        yield Unreadable("damaged-archive")
        return
    if num_read < num_bytes:
        yield Unreadable("cut-tail")


def _events(message: Any) -> Iterator[Event]:
    if isinstance(message, list) and len(message) == 3 and isinstance(message[2], bytes):
        # As it came from the socket: topic, sequence number, payload.
        import msgpack

        try:
            message = msgpack.unpackb(message[2], raw=False, strict_map_key=False)
        except (ValueError, msgpack.UnpackException):
            yield Unreadable("damaged-archive")
            return
    if isinstance(message, dict) and isinstance(message.get("events"), list):
        found = message["events"]
    elif (
        isinstance(message, list)
        and len(message) >= 2
        and isinstance(message[1], list)
        and (isinstance(message[0], int | float))
    ):
        found = message[1]
    else:
        found = [message]
    for event in found:
        try:
            yield _event(event)
        except RecordError as error:
            yield Unreadable(error.kind)


def _event(event: Any) -> Event:
    name, values = _named(event)
    match _NAMES.get(name):
        case "cleared":
            return Cleared()
        case "removed":
            return Removed(
                hashes=_hashes(values.get("block_hashes")),
                medium=_medium(values.get("medium")),
                group=_whole(values.get("group_idx")),
            )
        case "stored":
            return _stored(values)
    raise RecordError("no-event", "the message is no KV event")


def _named(event: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(event, list) and event and isinstance(event[0], str):
        fields = _STORED_FIELDS if _NAMES.get(event[0]) == "stored" else _REMOVED_FIELDS
        return event[0], dict(zip(fields, event[1:], strict=False))
    if isinstance(event, dict):
        for key in ("type", "event", "event_type", "name"):
            if isinstance(event.get(key), str):
                return event[key], event
        if "token_ids" in event and "block_hashes" in event:
            return "BlockStored", event
    raise RecordError("no-event", "the message is no KV event")


def _stored(values: Mapping[str, Any]) -> Stored:
    hashes = _hashes(values.get("block_hashes"))
    size = _whole(values.get("block_size"))
    ids = token_ids(values.get("token_ids"), "token_ids")
    if size is None or size < 1 or len(ids) != size * len(hashes):
        raise RecordError("bad-field", "the tokens don't fill the blocks")
    parent = values.get("parent_block_hash")
    if parent is not None and not isinstance(parent, int | bytes | str):
        raise RecordError("bad-field", "the parent is no hash")
    extra = values.get("extra_keys")
    name = values.get("lora_name", UNKNOWN)
    number = values.get("lora_id", UNKNOWN)
    kind = values.get("kv_cache_spec_kind")
    return Stored(
        hashes=hashes,
        parent=parent,
        token_ids=ids,
        block_size=size,
        lora_id=number if number is None or type(number) is int else UNKNOWN,
        lora_name=name if name is None or isinstance(name, str) else UNKNOWN,
        medium=_medium(values.get("medium")),
        extra_keys=tuple(extra) if isinstance(extra, list) and len(extra) == len(hashes) else None,
        group=_whole(values.get("group_idx")),
        group_kind=kind if isinstance(kind, str) else None,
    )


def _hashes(value: Any) -> tuple[BlockHash, ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, int | bytes | str) and not isinstance(item, bool) for item in value
    ):
        raise RecordError("bad-field", "the event has no list of block hashes")
    return tuple(value)


def _medium(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
