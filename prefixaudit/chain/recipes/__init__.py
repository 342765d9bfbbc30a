"""Chains as engines compute them, one recipe a file, and `chain_of` that runs the right one."""

from prefixaudit.chain.recipes._chain_of import (
    RECIPES,
    chain_of,
    comparable_groups,
    hashing_tier,
    root_of,
)
from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    ProcessLocalHashError,
)

__all__ = [
    "RECIPES",
    "ChainOptions",
    "ChainRecipe",
    "ChainedBlock",
    "HashedChain",
    "ProcessLocalHashError",
    "chain_of",
    "comparable_groups",
    "hashing_tier",
    "root_of",
]
