"""LMCache's chunk hashes inside a vLLM process: F((prefix, tokens, ())), folded to 8 bytes.

F is vLLM's function of that name, or Python's hash() where vLLM has none; the first prefix is
vLLM's root, folded too. `engines/lmcache.toml` has the forms by release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prefixaudit.chain.recipes._lmcache import substituted
from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    chosen_algorithm,
    form,
    random_root,
)
from prefixaudit.chain.recipes._vllm_hash import drawn_root, hash_function
from prefixaudit.core.engine import HashFacts
from prefixaudit.errors import UsageError

_FOLDED_BYTES: Final = 8


def _folded(value: bytes | int) -> int:
    return value if isinstance(value, int) else int.from_bytes(value[:_FOLDED_BYTES], "big")


def _root(facts: HashFacts, options: ChainOptions) -> int | None:
    """Return the first prefix; None where each process draws one at random."""
    if options.root is not None:
        try:
            return int(options.root)
        except ValueError:
            raise UsageError("the root is not written as expected; expected an integer") from None
    if form(facts, "root", ("zero", "host")) == "zero":
        return 0
    algorithm = chosen_algorithm(facts, options)
    root = drawn_root(facts, options, algorithm, _hash_form(facts))
    return None if root is None else _folded(root)


def _hash_form(facts: HashFacts) -> str:
    return form(facts, "hash", ("integer", "digest"))


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    algorithm = chosen_algorithm(facts, options)
    root = _root(facts, options)
    if root is None:
        raise random_root(facts)
    function = hash_function(algorithm, _hash_form(facts), options)
    tokens = substituted(token_ids, options.media, facts)
    if block_size < 1:
        raise UsageError(f"block size {block_size}; expected 1 or more")
    prefix = root
    blocks = []
    for start in range(0, len(tokens), block_size):
        end = min(start + block_size, len(tokens))
        if end - start < block_size and not options.includes_partial_block:
            break
        prefix = _folded(function((prefix, tokens[start:end], ())))
        # The engine writes a negative number with its sign.
        blocks.append(ChainedBlock(digest=f"{prefix:x}", published=str(prefix), end=end))
    return HashedChain(root=str(root), algorithm=algorithm, blocks=tuple(blocks))


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    root = _root(facts, options)
    return None if root is None else str(root)


RECIPE = ChainRecipe(
    title="LMCache chunk hashes, in-process", hash_blocks=_hash_blocks, root_of=_root_of
)
