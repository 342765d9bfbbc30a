"""vLLM's block hashes, byte for byte: F((parent, tokens, extra keys or None)).

F is in `_vllm_hash.py`. Pickle writes an object that it meets twice once, and refers to it: so the
tag of a kind of key is one object here, as in the engine, and every text of a request is one of its
own, even where two are equal. `engines/vllm.toml` has the forms by release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prefixaudit.chain.recipes._python_hash import hash_of_text
from prefixaudit.chain.recipes._recipe import (
    ChainedBlock,
    ChainOptions,
    ChainRecipe,
    HashedChain,
    chosen_algorithm,
    form,
    full_block_ends,
    overlapping,
    random_root,
)
from prefixaudit.chain.recipes._vllm_hash import hash_function, pickle_bytes, seed_of
from prefixaudit.core.engine import HashFacts
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.errors import UsageError

Hash: TypeAlias = bytes | int | None

_LOW_64_BITS: Final = 2**64 - 1
# One object each, as the engine's constants are.
_LORA_TAG: Final = "lora"
_MEDIA_TAG: Final = "mm"
_SALT_TAG: Final = "cache_salt"
_EMBEDS_TAG: Final = "prompt_embeds"


def _root_value(facts: HashFacts, options: ChainOptions) -> tuple[bool, Hash]:
    """Return (whether it is known, the parent of block 0)."""
    algorithm = chosen_algorithm(facts, options)
    hash_form = form(facts, "hash", ("integer", "digest"))
    if options.root is not None:
        return True, _given_root(options.root, hash_form)
    kind = form(facts, "root", ("none", "text-none", "pickled-none", "pickled-seed", "hashed-seed"))
    if kind == "none":
        return True, None
    seed = options.seed
    if kind == "pickled-none":
        return (True, _pickled_integer(None)) if seed is None else (False, None)
    if kind == "text-none":
        fixed = seed is not None and seed != "random"
        return fixed, hash_of_text("None", seed or "", options.python) if fixed else None
    seed = seed_of(facts, options, algorithm)
    if seed is None:
        return False, None
    if kind == "pickled-seed":
        return True, _pickled_integer(seed)
    if algorithm == "builtin" and seed == "random":
        return False, None
    return True, hash_function(algorithm, hash_form, options)(_own(seed))


def _pickled_integer(value: str | None) -> int:
    return int.from_bytes(hashlib.sha256(pickle_bytes(value)).digest(), "big")


def _given_root(root: str, hash_form: str) -> bytes | int:
    try:
        return int(root) if hash_form == "integer" else bytes.fromhex(root)
    except ValueError:
        expected = "a decimal integer" if hash_form == "integer" else "hexadecimal digits"
        raise UsageError(f"the root is not written as expected; expected {expected}") from None


def _own(text: str) -> str:
    """Return an equal text that is an object of its own, as one decoded from a request is.

    CPython has one object for each single character of Latin-1, so a decoder gives that one, and
    so does chr(); join() alone wouldn't.
    """
    return chr(ord(text)) if len(text) == 1 else "".join((text[:1], text[1:]))


@dataclass(frozen=True, slots=True)
class _Keys:
    """Builds the extra keys of a block: adapter, media, salt, prompt embeddings, in this order."""

    lora: tuple[Any, ...]
    media: tuple[MediaSpan, ...]
    identifiers: tuple[str, ...]
    media_form: str
    salt: tuple[Any, ...]
    prompt_embeds: Sequence[bytes] | None
    embeds_form: str

    def of_block(self, start: int, end: int) -> tuple[Any, ...] | None:
        """Return the keys of the tokens [start, end), None if there are none."""
        keys = self.lora
        if self.media:
            keys += tuple(self._medium(span, start) for span in overlapping(self.media, start, end))
        if start == 0:
            keys += self.salt
        if self.prompt_embeds is not None:
            keys += (self._embeds(b"".join(self.prompt_embeds[start:end])),)
        return keys or None

    def of_chain(
        self, tokens: tuple[int, ...], start: int, end: int, lookahead: int
    ) -> tuple[Any, ...] | None:
        """Return the third element of a block's tuple, next tokens included."""
        if not lookahead:
            return self.of_block(start, end)
        return (self.of_block(start, end + lookahead), *tokens[end : end + lookahead])

    def _embeds(self, rows: bytes) -> object:
        if self.embeds_form == "rows":
            return rows
        digest = hashlib.sha256(rows).digest()
        return digest if self.embeds_form == "digest" else (_EMBEDS_TAG, digest)

    def _medium(self, span: MediaSpan, start: int) -> object:
        identifier = self.identifiers[self.media.index(span)]
        if self.media_form == "identifier":
            return identifier
        # Negative where the placeholder began in an earlier block.
        offset = span.offset - start
        if self.media_form == "identifier-and-offset":
            return (identifier, offset)
        return (_MEDIA_TAG, identifier, offset)


def _keys(facts: HashFacts, options: ChainOptions, num_tokens: int) -> _Keys:
    media_form = form(facts, "media", ("none", "identifier", "identifier-and-offset", "tagged"))
    media = () if media_form == "none" else options.media
    media = tuple(sorted(media, key=lambda span: span.offset))
    shared: dict[str, str] = {}
    identifiers = tuple(
        shared.setdefault(span.identifier, _own(span.identifier))
        if options.is_media_identifier_shared
        else _own(span.identifier)
        for span in media
    )
    salt_form = form(facts, "salt", ("none", "bare", "tagged"))
    salt: tuple[Any, ...] = ()
    if options.cache_salt and salt_form != "none":
        own = _own(options.cache_salt)
        salt = ((_SALT_TAG, own),) if salt_form == "tagged" else (own,)
    embeds_form = form(facts, "prompt_embeds", ("none", "rows", "digest", "tagged-digest"))
    embeds = None if embeds_form == "none" else options.prompt_embeds
    if embeds is not None and len(embeds) != num_tokens:
        raise UsageError(f"{len(embeds)} rows of prompt embeddings for {num_tokens} tokens")
    return _Keys(
        lora=_lora(facts, options),
        media=media,
        identifiers=identifiers,
        media_form=media_form,
        salt=salt,
        prompt_embeds=embeds,
        embeds_form=embeds_form,
    )


def _lora(facts: HashFacts, options: ChainOptions) -> tuple[Any, ...]:
    lora_form = form(facts, "lora", ("none", "number", "name", "tagged"))
    if lora_form == "none" or (options.lora_name is None and options.lora_id is None):
        return ()
    if lora_form == "number":
        if options.lora_id is None:
            raise UsageError("this release keys adapters by number; expected the adapter's number")
        return (options.lora_id,)
    if options.lora_name is None:
        raise UsageError("this release keys adapters by name; expected the adapter's name")
    if lora_form == "name":
        return (_own(options.lora_name),)
    if options.lora_path is None:
        raise UsageError("this release keys adapters by name and path; expected the path too")
    return ((_LORA_TAG, _own(options.lora_name), _own(options.lora_path)),)


def _hash_blocks(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> HashedChain:
    algorithm = chosen_algorithm(facts, options)
    lookahead = options.lookahead_tokens
    if lookahead and form(facts, "lookahead", ("none", "tokens")) == "none":
        raise UsageError("this release has no hashes over the tokens after a block")
    is_known, root = _root_value(facts, options)
    if not is_known:
        raise random_root(facts)
    function = hash_function(algorithm, form(facts, "hash", ("integer", "digest")), options)
    is_flat = form(facts, "tuple", ("flat", "nested")) == "flat"
    keys = _keys(facts, options, len(token_ids))
    tokens = tuple(token_ids)

    blocks = []
    parent: Hash = root
    for end in full_block_ends(len(tokens) - lookahead, block_size):
        block = tokens[end - block_size : end]
        extra = keys.of_chain(tokens, end - block_size, end, lookahead)
        parent = function((parent, *block) if is_flat else (parent, block, extra))
        blocks.append(ChainedBlock(digest=_text(parent), published=_published(parent), end=end))
    return HashedChain(root=_text(root), algorithm=algorithm, blocks=tuple(blocks))


def extra_keys(
    token_ids: Sequence[int], block_size: int, facts: HashFacts, options: ChainOptions
) -> list[tuple[Any, ...] | None]:
    """Return each full block's extra keys as the engine builds them, None for a block without."""
    keys = _keys(facts, options, len(token_ids))
    tokens = tuple(token_ids)
    lookahead = options.lookahead_tokens
    return [
        keys.of_chain(tokens, end - block_size, end, lookahead)
        for end in full_block_ends(len(tokens) - lookahead, block_size)
    ]


def _text(value: Hash) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return "none" if value is None else str(value)


def _published(value: bytes | int) -> str:
    """Return the form in events: the low 64 bits as an unsigned integer, or the integer itself."""
    if isinstance(value, bytes):
        return str(int.from_bytes(value[-8:], "big"))
    return str(value)


def _root_of(facts: HashFacts, options: ChainOptions) -> str | None:
    is_known, root = _root_value(facts, options)
    return _text(root) if is_known else None


RECIPE = ChainRecipe(title="vLLM block hashes", hash_blocks=_hash_blocks, root_of=_root_of)
