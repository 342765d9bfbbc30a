"""vLLM's F, the function from a value to its hash, which LMCache and llm-d take over.

F serialises with pickle protocol 5 or canonical CBOR and hashes with SHA-256 or XXH3-128; before
vLLM 0.10.2 hashes were integers. Pickle is only ever written here, never read.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Final

import cbor2
import xxhash

from prefixaudit.chain.recipes._python_hash import Hashed, hash_of_none, hash_of_text
from prefixaudit.chain.recipes._recipe import ChainOptions, ProcessLocalHashError
from prefixaudit.core.engine import HashFacts

_PICKLE_PROTOCOL: Final = 5
_FIXED_SEED: Final = "vllm-none-hash"


def pickle_bytes(value: object) -> bytes:
    """Return `value` as the engine pickles it."""
    return pickle.dumps(value, protocol=_PICKLE_PROTOCOL)


def canonical_cbor(value: object) -> bytes:
    """Return `value` as canonical CBOR."""
    return bytes(cbor2.dumps(value, canonical=True))


def _digest(algorithm: str) -> Callable[[object], bytes]:
    """Return the function from a value to its digest (bytes)."""
    serialise = canonical_cbor if "_cbor" in algorithm else pickle_bytes
    if algorithm.startswith("xxhash"):
        xxh3: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
        return lambda value: xxh3(serialise(value))
    return lambda value: hashlib.sha256(serialise(value)).digest()


def hash_function(
    algorithm: str, hash_form: str, options: ChainOptions
) -> Callable[[object], bytes | int]:
    """Return F for an algorithm; `hash_form` says whether hashes are "integer" or "digest"."""
    if algorithm == "builtin":
        return lambda value: hash(_with_known_hashes(value, options))
    digest = _digest(algorithm)
    if hash_form == "digest":
        return digest
    if algorithm.endswith("_64bit"):
        return lambda value: int.from_bytes(digest(value)[-8:], "big")
    return lambda value: int.from_bytes(digest(value), "big")


def _with_known_hashes(value: object, options: ChainOptions) -> object:
    """Replace text and None by stand-ins with the hash they have in the engine's process."""
    if isinstance(value, tuple):
        return tuple(
            item if isinstance(item, int) else _with_known_hashes(item, options) for item in value
        )
    if value is None:
        return Hashed(hash_of_none(options.python))
    if isinstance(value, str):
        if options.seed is None:
            raise ProcessLocalHashError(
                "the key holds text, whose hash differs by process without a seed"
            )
        return Hashed(hash_of_text(value, options.seed, options.python))
    return value


def seed_of(facts: HashFacts, options: ChainOptions, algorithm: str) -> str | None:
    """Return the text that block 0's parent is made from; None where each process draws one.

    That is PYTHONHASHSEED; releases that don't draw one without it take a fixed text, though not
    for XXH3.
    """
    if options.seed is not None:
        return options.seed
    if facts.unset_seed != "fixed-unless-xxhash" or algorithm.startswith("xxhash"):
        return None
    return _FIXED_SEED


def drawn_root(
    facts: HashFacts, options: ChainOptions, algorithm: str, hash_form: str
) -> bytes | int | None:
    """Return F of the seed, as LMCache starts its chains; None where each process draws one."""
    if algorithm == "builtin":
        if options.seed is None or options.seed == "random":
            return None
        return hash_of_text(options.seed, options.seed, options.python)
    seed = seed_of(facts, options, algorithm)
    return None if seed is None else hash_function(algorithm, hash_form, options)(seed)
