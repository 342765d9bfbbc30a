"""A BlockTrace as a file of our own format, and back: anonymous, so that it can be shared.

The file is a zip archive: `header.json` (format, version, counts, identities) and one entry a
column, raw little-endian numbers. What it holds of the prompts is which blocks are equal: labels
are keyed digests (BLAKE2b), under a random secret that is never written, or under a key that the
user keeps, so that two exports can be compared. Without the key nobody can test whether a guessed
prompt is among them. Identity values that name people, tenants, salts, adapters or places are
keyed in the same way; request ids become positions, and times count from the first request.

Reading checks everything: a file may come from anywhere, and a wrong one must not become a wrong
figure.
"""

from __future__ import annotations

import hashlib
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from prefixaudit.chain import tree_kernels
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.trace import BlockTrace, BlockTree
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.errors import ConfigurationError, IncompleteError

FORMAT: Final = "prefixaudit-trace"
VERSION: Final = 1
KEY_VARIABLE: Final = "PREFIXAUDIT_EXPORT_KEY"
MIN_KEY_BYTES: Final = 16
MAX_BYTES: Final = 16 * 2**30

# Facts of a deployment that say nothing about whose it is; every other field is keyed.
_PLAIN_FIELDS: Final = frozenset({"model", "dtype", "quantization", "kv_cache_dtype", "attention"})
_HEADER: Final = "header.json"
_MAX_HEADER_BYTES: Final = 256 * 2**20
_LABEL_BYTES: Final = 16
_MOST_COUNT: Final = 2**31 - 1
_MOST_TOKENS: Final = 2**50
# Below this many nodes, plain Python is done before the compiled code would be loaded.
_FEW_NODES: Final = 20_000
_UNREADABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
_TREE_COLUMNS: Final = {"parent": "<i4", "num_blocks": "<i4"}
_REQUEST_COLUMNS: Final = {
    "index": "<i8",
    "node": "<i4",
    "num_prompt_tokens": "<i8",
    "num_generated_tokens": "<i8",
    "num_output_tokens": "<i8",
    "arrival_s": "<f8",
    "identity": "<i4",
    "session": "<i4",
    "reads_cache": "|b1",
    "partial_ids": "<u8",
    "has_partial_id": "|b1",
}


def load_key(path: Path | None, environment: Mapping[str, str]) -> bytes | None:
    """Return the key that a user keeps: the file's bytes, else PREFIXAUDIT_EXPORT_KEY, else None.

    White space around it doesn't count. Raises ConfigurationError for a file that can't be read
    and for a key of fewer than 16 bytes; the message doesn't hold the key.
    """
    if path is None:
        value = environment.get(KEY_VARIABLE)
        if value is None:
            return None
        name, key = KEY_VARIABLE, value.encode("utf-8", "surrogateescape").strip()
    else:
        try:
            name, key = str(path), path.read_bytes().strip()
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    if len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(
            f"{name}: a key of {len(key)} bytes; expected {MIN_KEY_BYTES} or more"
        )
    return key


def _derived(key: bytes | None) -> bytes:
    secret = secrets.token_bytes(32) if key is None else key
    return hashlib.blake2b(secret, digest_size=32, person=b"prefixaudit-expo").digest()


def _keyed(values: bytes, size: int, secret: bytes, digest_bytes: int) -> bytes:
    """Return the keyed digests of values of `size` bytes each, one after the other."""
    started = hashlib.blake2b(key=secret, digest_size=digest_bytes)
    digests = []
    for place in range(0, len(values), size):
        state = started.copy()
        state.update(values[place : place + size])
        digests.append(state.digest())
    return b"".join(digests)


def _anonymous(name: str, value: Known[str], secret: bytes) -> Known[str]:
    """Return a field's value as an export holds it; equal values stay equal."""
    if value is None or value is UNKNOWN or name in _PLAIN_FIELDS:
        return value
    text = name.encode() + b"\x00" + value.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=secret, digest_size=16, person=b"identity").hexdigest()


def anonymized(trace: BlockTrace, *, key: bytes | None = None) -> BlockTrace:
    """Return the trace as an export holds it: the same sharing, nothing of who or what.

    `key` None draws a random secret that is then forgotten.
    """
    secret = _derived(key)
    labels = np.frombuffer(
        _keyed(
            trace.tree.labels.astype("<u8").tobytes(),
            _LABEL_BYTES,
            secret,
            digest_bytes=_LABEL_BYTES,
        ),
        dtype="<u8",
    ).reshape(-1, 2)
    partial = np.zeros(trace.num_requests, dtype=np.uint64)
    raw = trace.partial_ids[trace.has_partial_id].astype("<u8").tobytes()
    partial[trace.has_partial_id] = np.frombuffer(
        _keyed(raw, 8, secret, digest_bytes=8), dtype="<u8"
    )
    known = trace.arrival_s[~np.isnan(trace.arrival_s)]
    return replace(
        trace,
        tree=replace(trace.tree, labels=labels.astype(np.uint64)),
        identities=tuple(
            Identity(
                **{
                    name: _anonymous(name, getattr(identity, name), secret)
                    for name in IDENTITY_FIELDS
                }
            )
            for identity in trace.identities
        ),
        arrival_s=trace.arrival_s - known.min() if len(known) else trace.arrival_s,
        request_ids=tuple(map(str, trace.index.tolist())),
        partial_ids=partial,
    )


def write_trace(trace: BlockTrace, file: BinaryIO, *, key: bytes | None = None) -> None:
    """Write the anonymized trace. Its hits and donors are the trace's under every key.

    `key` None draws a random secret; a key of the user's gives equal blocks of two exports equal
    labels, and equal traces equal files.
    """
    trace = anonymized(trace, key=key)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "block_size": trace.block_size,
        "num_requests": trace.num_requests,
        "num_nodes": len(trace.tree.parent),
        "num_blocks": trace.num_distinct_blocks,
        "identities": [
            {
                name: {"unknown": True} if value is UNKNOWN else value
                for name in IDENTITY_FIELDS
                for value in (getattr(identity, name),)
            }
            for identity in trace.identities
        ],
    }
    columns: dict[str, NDArray[Any]] = {
        **{
            f"tree/{name}": getattr(trace.tree, name).astype(kind)
            for name, kind in _TREE_COLUMNS.items()
        },
        "tree/labels": trace.tree.labels.astype("<u8"),
        **{
            f"requests/{name}": getattr(trace, name).astype(kind)
            for name, kind in _REQUEST_COLUMNS.items()
        },
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        # A ZipInfo without a date, so that equal traces under one key are equal files.
        archive.writestr(_entry(_HEADER), orjson.dumps(header, option=orjson.OPT_INDENT_2))
        for name, column in columns.items():
            entry = _entry(name)
            if name == "tree/labels":
                entry.compress_type = zipfile.ZIP_STORED
            archive.writestr(entry, column.tobytes())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def is_trace_file(start: bytes) -> bool:
    """Say whether the first bytes of a file look like an export of ours (a zip archive)."""
    return start.startswith(b"PK\x03\x04") and _HEADER.encode() in start[:64]


def read_trace(path: Path, *, max_bytes: int = MAX_BYTES) -> BlockTrace:
    """Read an export back.

    Raises IncompleteError where the file can't be read, is no export, has another version, is
    larger than `max_bytes` when unpacked, or contradicts itself.
    """
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise IncompleteError(f"{path}: {error.strerror or error}") from error
    except _UNREADABLE as error:
        raise _wrong(path, "not a readable archive") from error
    with archive:
        return _read(archive, path, max_bytes)


def _wrong(path: Path, what: str) -> IncompleteError:
    return IncompleteError(f"{path}: {what}; expected what `prefixaudit export` wrote")


def _read(archive: zipfile.ZipFile, path: Path, max_bytes: int) -> BlockTrace:
    def wrong(what: str) -> IncompleteError:
        return _wrong(path, what)

    def entry(name: str, limit: int) -> bytes:
        try:
            info = archive.getinfo(name)
        except KeyError:
            raise wrong(f"`{name}` is missing") from None
        if info.file_size > limit:
            raise wrong(f"`{name}` has {info.file_size} bytes, more than {limit}")
        try:
            with archive.open(info) as file:
                return file.read(limit + 1)
        except (OSError, *_UNREADABLE) as error:
            raise wrong(f"`{name}` can't be unpacked") from error

    try:
        header = orjson.loads(entry(_HEADER, _MAX_HEADER_BYTES))
    except orjson.JSONDecodeError:
        raise wrong(f"`{_HEADER}` is no JSON") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise wrong("not an export")
    if header.get("version") != VERSION:
        raise IncompleteError(f"{path}: an export of another version; expected {VERSION}")
    counts = {}
    for name in ("block_size", "num_requests", "num_nodes", "num_blocks"):
        value = header.get(name)
        if type(value) is not int or not int(name == "block_size") <= value <= _MOST_COUNT:
            raise wrong(f"`{name}` is out of range")
        counts[name] = value
    row_bytes = sum(np.dtype(kind).itemsize for kind in _REQUEST_COLUMNS.values())
    total = (
        counts["num_requests"] * row_bytes
        + counts["num_nodes"] * 8
        + counts["num_blocks"] * _LABEL_BYTES
    )
    if total > max_bytes:
        raise wrong(f"{total} bytes of columns, more than {max_bytes}")

    def column(name: str, kind: str, length: int) -> NDArray[Any]:
        size = length * np.dtype(kind).itemsize
        raw = entry(name, size)
        if len(raw) != size:
            raise wrong(f"`{name}` has {len(raw)} bytes instead of {size}")
        if kind == "|b1" and raw.strip(b"\x00\x01"):
            raise wrong(f"`{name}` holds neither true nor false")
        native = np.dtype(kind).newbyteorder("=")
        return np.frombuffer(raw, dtype=kind).astype(native)

    nodes = {
        name: column(f"tree/{name}", kind, counts["num_nodes"])
        for name, kind in _TREE_COLUMNS.items()
    }
    requests = {
        name: column(f"requests/{name}", kind, counts["num_requests"])
        for name, kind in _REQUEST_COLUMNS.items()
    }
    labels = column("tree/labels", "<u8", 2 * counts["num_blocks"]).reshape(-1, 2)
    tree = _checked_tree(nodes["parent"], nodes["num_blocks"], labels)
    if tree is None:
        raise wrong("the tree of blocks contradicts itself")
    identities = _identities(header.get("identities"))
    if identities is None:
        raise wrong("`identities` are no identities")
    trace = BlockTrace(
        block_size=counts["block_size"],
        tree=tree,
        identities=identities,
        num_blocks=_num_blocks(tree, requests["node"]),
        request_ids=tuple(map(str, requests["index"].tolist())),
        **requests,
    )
    problem = _problem(trace)
    if problem:
        raise wrong(problem)
    return trace


def _checked_tree(
    parent: NDArray[np.int32], num_blocks: NDArray[np.int32], labels: NDArray[np.uint64]
) -> BlockTree | None:
    """Return the tree, None if it is none; two children of a node differ in their first label."""
    if (num_blocks < 1).any() or int(num_blocks.sum(dtype=np.int64)) != len(labels):
        return None
    if (parent < -1).any() or (parent >= np.arange(len(parent))).any():
        return None
    first = np.cumsum(num_blocks, dtype=np.int64) - num_blocks
    keys = np.empty(len(parent), dtype=[("parent", "i4"), ("low", "u8"), ("high", "u8")])
    keys["parent"], keys["low"], keys["high"] = parent, labels[first, 0], labels[first, 1]
    if len(np.unique(keys)) != len(keys):
        return None
    few = len(parent) < _FEW_NODES
    depths = tree_kernels.depths.py_func if few else tree_kernels.depths
    return BlockTree(
        parent=parent,
        first_block=first,
        num_blocks=num_blocks,
        depth_blocks=depths(parent, num_blocks),
        labels=labels,
    )


def _num_blocks(tree: BlockTree, node: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the blocks up to the end of each node, 0 for what is no node."""
    inside = (node >= 0) & (node < len(tree.parent))
    result = np.zeros(len(node), dtype=np.int32)
    result[inside] = tree.depth_blocks[node[inside]] + tree.num_blocks[node[inside]]
    return result


def _identities(values: object) -> tuple[Identity, ...] | None:
    if not isinstance(values, list):
        return None
    identities = []
    for value in values:
        if not isinstance(value, dict) or not value.keys() <= set(IDENTITY_FIELDS):
            return None
        known: dict[str, str | None] = {}
        for name, text in value.items():
            if text == {"unknown": True}:
                continue
            if text is not None and not isinstance(text, str):
                return None
            known[name] = text
        identities.append(Identity(**known))
    return tuple(identities)


def _problem(trace: BlockTrace) -> str | None:
    """Say what is wrong with the requests' columns, None if nothing is."""
    stored_tokens = trace.num_prompt_tokens + trace.num_generated_tokens
    checks = {
        "node": (trace.node < -1) | (trace.node >= len(trace.tree.parent)),
        "identity": (trace.identity < 0) | (trace.identity >= len(trace.identities)),
        "session": trace.session < -1,
        "index": trace.index < 0,
        "num_prompt_tokens": (trace.num_prompt_tokens < 0)
        | (trace.num_prompt_tokens > _MOST_TOKENS),
        "num_generated_tokens": (trace.num_generated_tokens < 0)
        | (trace.num_generated_tokens > _MOST_TOKENS),
        "num_output_tokens": trace.num_output_tokens < -1,
        "num_blocks": trace.num_blocks != stored_tokens // trace.block_size,
        "arrival_s": np.isinf(trace.arrival_s),
        "has_partial_id": trace.has_partial_id & (stored_tokens % trace.block_size == 0),
    }
    for name, bad in checks.items():
        if bad.any():
            return f"`{name}` of request {int(bad.argmax())} is out of range"
    return None
