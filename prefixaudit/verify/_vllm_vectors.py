"""What the recorded vLLM runs have in common: their tokens, block keys, and pool settings.

Their keys are sha256_cbor digests with PYTHONHASHSEED=0, computed here in a few lines so that a
mismatch of a pool never comes from the recipe that the `vllm-hashes` vectors verify.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cbor2
from packaging.version import Version

from prefixaudit.pool.vllm.rules import GroupRules, PoolRules, pool_rules, release_rules

_WINDOWS: Final = ("sliding_window", "attention_chunk_size")


def tokens_of(pieces: Sequence[Sequence[int]]) -> list[int]:
    """Return the tokens of pieces [segment, start, length] by the vectors' formula."""
    return [
        (segment * 1_000_003 + place * 7_919 + 17) % 151_000
        for segment, start, length in pieces
        for place in range(start, start + length)
    ]


def rules_of(settings: Mapping[str, Any], engine_version: str) -> PoolRules:
    """Return the rules that a recorded run was made under; an absent interval is a dense one."""
    return pool_rules(
        release_rules(engine_version),
        tuple(_group(group) for group in settings["groups"]),
        hash_block_size=settings.get("hash_block_size"),
        scheduler_block_size=settings.get("scheduler_block_size"),
        retention_interval_tokens=settings.get("retention_interval"),
        use_eagle=settings.get("use_eagle", False),
    )


def _group(settings: Mapping[str, Any]) -> GroupRules:
    windows = [settings[name] for name in _WINDOWS if name in settings]
    return GroupRules(
        kind=settings["type"].replace("_", "-"),
        block_size=settings["block_size"],
        window_tokens=windows[0] if windows else None,
    )


class KeyChain:
    """The keys of one request's full hash blocks; `grow` appends those that new tokens fill."""

    def __init__(
        self,
        block_size: int,
        engine_version: str,
        *,
        lora: int | None = None,
        salt: str | None = None,
    ) -> None:
        self.keys: list[bytes] = []
        self._block_size = block_size
        self._parent = _digest("0")
        version = Version(engine_version)
        self._every = () if lora is None else (_adapter(lora, version),)
        # Tags came in 0.31; an empty salt is none.
        tagged: object = ("cache_salt", salt) if version >= Version("0.31") else salt
        self._first = (tagged,) if salt else ()

    def grow(self, tokens: Sequence[int]) -> None:
        size = self._block_size
        while (len(self.keys) + 1) * size <= len(tokens):
            place = len(self.keys)
            extra = self._every + (self._first if place == 0 else ())
            block = tuple(tokens[place * size : (place + 1) * size])
            self._parent = _digest((self._parent, block, extra or None))
            self.keys.append(self._parent)


def _adapter(number: int, version: Version) -> object:
    name = f"adapter-{number}"
    if version >= Version("0.31"):
        return ("lora", name, f"/adapters/{number}")
    return name if version >= Version("0.11.1") else number


def _digest(value: object) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def published(key: object) -> str:
    """Return the last 8 bytes of a key in hex, as events name it; of the last of several keys."""
    last = key[-1] if isinstance(key, tuple) else key
    assert isinstance(last, bytes)
    return last[-8:].hex()
