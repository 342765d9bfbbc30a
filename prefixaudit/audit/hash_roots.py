"""Which servers' block hashes can be equal at all: the root of the chain, its seed and algorithm.

Two servers whose roots differ never find each other's blocks, whatever they share.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from packaging.version import InvalidVersion, Version

from prefixaudit.audit.server_facts import Fact, fact_of
from prefixaudit.core.audit import AuditSubject, ServerFacts, TierFacts
from prefixaudit.core.engine import HashFacts
from prefixaudit.core.unknown import UNKNOWN, Unknown

Root: TypeAlias = tuple[str, ...]
"""What decides the hash of a first block; ("random", server) equals no other's."""

RANDOM: Final = "random"
# Before, hash(None) was an address; from Python 3.12 it is a constant.
_CONSTANT_HASH_OF_NONE = Version("3.12")


def root_of(server: ServerFacts, tier: TierFacts, subject: AuditSubject) -> Root | Unknown:
    """Return the root of a server's hashes in a tier; UNKNOWN for want of a setting."""
    facts = tier.tier.hash
    if facts is None or facts.recipe not in ("vllm", "lmcache-in-process"):
        return ("fixed", "" if facts is None else facts.recipe)
    seed = fact_of("hash_seed", server, subject)
    if facts.recipe == "lmcache-in-process":
        algorithm = tier.settings.get("pre_caching_hash_algorithm", UNKNOWN)
        if algorithm is None:
            algorithm = facts.algorithms[0]
        if algorithm == "builtin":
            # The root is hash(PYTHONHASHSEED) in a process whose hash() that seed decides.
            return _seeded(seed, server, "builtin", "")
        own = facts
    else:
        algorithm = fact_of("hash_algorithm", server, subject)
        engine = server.engine
        if engine is None or engine.version is None:
            return UNKNOWN
        own = next((item.hash for item in engine.tiers if item.hash is not None), facts)
    if not isinstance(algorithm, str):
        return UNKNOWN
    return _root(own, algorithm, seed, server)


def _root(facts: HashFacts, algorithm: str, seed: Fact, server: ServerFacts) -> Root | Unknown:
    # What a block of tokens alone is hashed over; other forms differ for other parts only.
    written = "/".join(facts.forms.get(name, "") for name in ("tuple", "hash", "root"))
    if facts.unset_seed == "none":
        return _hash_of_none(server, algorithm, written)
    if facts.forms.get("root") == "pickled-none":
        # vLLM 0.8.3 and 0.8.4 test for the seed the wrong way round.
        if seed is UNKNOWN:
            return UNKNOWN
        return ("fixed", algorithm, written) if seed is None else (RANDOM, server.name)
    if seed is None and facts.unset_seed == "fixed":
        return ("fixed", algorithm, written)
    if seed is None and facts.unset_seed == "fixed-unless-xxhash":
        if not algorithm.startswith("xxhash"):
            return ("fixed", algorithm, written)
        return (RANDOM, server.name)
    return _seeded(seed, server, algorithm, written)


def _seeded(seed: Fact, server: ServerFacts, algorithm: str, written: str) -> Root | Unknown:
    if seed is UNKNOWN:
        return UNKNOWN
    if seed is None:
        return (RANDOM, server.name)
    return ("seed", str(seed), algorithm, written)


def _hash_of_none(server: ServerFacts, algorithm: str, written: str) -> Root | Unknown:
    python = server.settings.get("python_version", UNKNOWN)
    try:
        is_constant = Version(str(python)) >= _CONSTANT_HASH_OF_NONE
    except InvalidVersion:
        return UNKNOWN
    return ("fixed", algorithm, written) if is_constant else (RANDOM, server.name)
