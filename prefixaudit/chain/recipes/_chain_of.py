"""The chain of a prompt as an engine's tier computes it, and which processes' chains compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from prefixaudit.chain.recipes._recipe import (
    ChainOptions,
    ChainRecipe,
    HashedChain,
    ProcessLocalHashError,
)
from prefixaudit.core.engine import EngineProfile, HashFacts, Tier
from prefixaudit.core.request import TokenArray
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.registry import Registry

RECIPES: Final[Registry[ChainRecipe]] = Registry(
    kind="chain recipe", package="prefixaudit.chain.recipes", attribute="RECIPE"
)
_DEFAULT_OPTIONS: Final = ChainOptions()


def hashing_tier(profile: EngineProfile, tier: str | None = None) -> tuple[Tier, HashFacts]:
    """Return the tier `tier` (None: the first that hashes) and how it hashes.

    Raises UsageError where there is no such tier or it has no hashes.
    """
    hashing = {each.name: each.hash for each in profile.tiers if each.hash is not None}
    if tier is None:
        if not hashing:
            raise UsageError(f"{profile.name} {profile.facts_version or ''} has no block hashes")
        tier = next(iter(hashing))
    found = profile.tier(tier)
    if found is None:
        names = [each.name for each in profile.tiers]
        raise UsageError(unknown_name(f"tier of {profile.name}", tier, names))
    if found.hash is None:
        raise UsageError(f"{profile.name}: the tier '{tier}' has no block hashes")
    return found, found.hash


def chain_of(
    token_ids: Sequence[int] | TokenArray,
    profile: EngineProfile,
    options: ChainOptions = _DEFAULT_OPTIONS,
    *,
    block_size: int | None = None,
    tier: str | None = None,
) -> HashedChain:
    """Return the hashes of a prompt's blocks as the engine computes them: full and published form.

    `block_size` defaults to the profile's, `tier` to the first that hashes. Raises UsageError
    where the chain can't be known: a root that is random in each process and wasn't given, an
    option that the release hasn't, or a token id that the engine could not have hashed.
    """
    _, facts = hashing_tier(profile, tier)
    ids = token_ids.tolist() if isinstance(token_ids, np.ndarray) else token_ids
    size = profile.default_block_size if block_size is None else block_size
    return RECIPES[facts.recipe].hash_blocks(ids, size, facts, options)


def root_of(
    profile: EngineProfile,
    options: ChainOptions = _DEFAULT_OPTIONS,
    *,
    tier: str | None = None,
) -> str | None:
    """Return the parent of block 0 as text; None where each process draws one at random."""
    _, facts = hashing_tier(profile, tier)
    return RECIPES[facts.recipe].root_of(facts, options)


def comparable_groups(
    instances: Sequence[tuple[EngineProfile, ChainOptions]],
) -> tuple[tuple[int, ...], ...]:
    """Group engine processes (by position) whose hashes of equal blocks are equal.

    Two are in one group if their recipe, algorithm and forms are equal and so is the parent of
    block 0. A process whose root, or whose hash of None or text, is its own is alone.
    """
    groups: dict[object, list[int]] = {}
    for position, (profile, options) in enumerate(instances):
        _, facts = hashing_tier(profile)
        signature: object
        try:
            probe = chain_of(_PROBE, profile, options, block_size=4)
            signature = (facts.recipe, tuple(sorted(facts.forms.items())), probe.digests)
        except ProcessLocalHashError:
            signature = position
        groups.setdefault(signature, []).append(position)
    return tuple(tuple(group) for group in groups.values())


_PROBE: Final = tuple(range(8))
