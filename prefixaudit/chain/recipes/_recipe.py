"""The seam of the engine-exact chains: what a recipe gets and what it gives.

A recipe is `chain/recipes/NAME.py` that ends in `RECIPE = ChainRecipe(...)`; NAME is what an
engine profile says in `[tiers.TIER.hash] recipe`. What differs between releases stands in the
profile's `[tiers.TIER.hash.forms]`, so that a recipe never compares versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prefixaudit.core.engine import HashFacts
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.errors import UsageError, unknown_name

_KNOWN_FORMS: Final = "forms that this release knows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """What goes into the keys of one prompt, beside its tokens, and how the engine is set.

    algorithm      as the engine's option spells it; None: the release's default
    seed           PYTHONHASHSEED, or the seed of the router's hash; None: not set
    python         the Python that the engine runs on; only keys made with hash() ask for it
    root           the parent of block 0 in hex (or a decimal integer for releases whose hashes are
                   integers); None: as the seed says
    lora_id        the number of the adapter by load order (old vLLM)
    media          in order of offset
    is_media_identifier_shared  equal identifiers are one object in the engine's process (only
                   pickle sees it)
    prompt_embeds  the raw bytes of each token's embedding row; None: there are none
    lookahead_tokens  tokens after a block that its hash covers too; 0: none
    is_bigram      hash pairs of neighbouring tokens (EAGLE-like drafting)
    includes_partial_block  also hash the tail that fills no block (LMCache: save_unfull_chunk)
    """

    algorithm: str | None = None
    seed: str | None = None
    python: str | None = None
    root: str | None = None
    model: str | None = None
    model_revision: str | None = None
    lora_name: str | None = None
    lora_path: str | None = None
    lora_id: int | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    media: tuple[MediaSpan, ...] = ()
    is_media_identifier_shared: bool = False
    prompt_embeds: Sequence[bytes] | None = None
    lookahead_tokens: int = 0
    is_bigram: bool = False
    includes_partial_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedBlock:
    """One block's hash: the full form (hex, or a decimal integer), and as the engine publishes it.

    `end` is the number of prompt tokens up to the block's last one.
    """

    digest: str
    published: str
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedChain:
    """The hashes of a prompt's blocks in order, and the parent of the first one."""

    root: str
    algorithm: str
    blocks: tuple[ChainedBlock, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(block.digest for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRecipe:
    """How one engine hashes: `hash_blocks(token_ids, block_size, facts, options)`.

    `root_of(facts, options)` gives the parent of block 0 as text, None where it is random.
    """

    title: str
    hash_blocks: Callable[[Sequence[int], int, HashFacts, ChainOptions], HashedChain]
    root_of: Callable[[HashFacts, ChainOptions], str | None]


def chosen_algorithm(facts: HashFacts, options: ChainOptions) -> str:
    """Return the algorithm asked for, or the release's default. UsageError if it has it not."""
    if options.algorithm is None:
        return facts.algorithms[0]
    if options.algorithm not in facts.algorithms:
        raise UsageError(unknown_name("hash algorithm", options.algorithm, facts.algorithms))
    return options.algorithm


def form(facts: HashFacts, name: str, known: Sequence[str]) -> str:
    """Return the form of a part of the key; a profile that spells another one is our own error."""
    value = facts.forms.get(name, "")
    assert value in known, f"form {name} = {value}; {_KNOWN_FORMS}: {', '.join(known)}"
    return value


class ProcessLocalHashError(UsageError):
    """The hash depends on what only the engine's own process knows."""


def random_root(facts: HashFacts) -> ProcessLocalHashError:
    """Return the error for a chain whose root differs by process and wasn't given."""
    return ProcessLocalHashError(
        f"the parent of the first block is random in each process ({facts.root})",
        hint="Give the seed that the engine was started with, or the root itself.",
    )


def full_block_ends(num_tokens: int, block_size: int) -> range:
    """Return the ends of all full blocks. UsageError for a block size below 1."""
    if block_size < 1:
        raise UsageError(f"block size {block_size}; expected 1 or more")
    return range(block_size, num_tokens + 1, block_size)


def overlapping(media: Sequence[MediaSpan], start: int, end: int) -> list[MediaSpan]:
    """Return the media whose placeholders have a token in [start, end), in order of offset."""
    return [span for span in media if span.offset < end and span.offset + span.num_tokens > start]
