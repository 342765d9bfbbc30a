"""What `prefixaudit hash` does: finds the prompt, hashes it, prints the chain.

Neither the prompt's tokens nor its salt are in the output.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from prefixaudit.cli.analyzing import load_for
from prefixaudit.cli.tables import Table, lines_of
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, RawText, Request, Skipped, TokenArray
from prefixaudit.core.request import Source as Place
from prefixaudit.deployment import Deployment, Overrides
from prefixaudit.errors import IncompleteError, UsageError, unknown_name
from prefixaudit.json_text import json_text

SCHEMA_VERSION: Final = 1
_MAX_TOKEN_ID: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the prompt is: ids, text, or a request of a log."""

    log: str | None
    request: str | None
    ids: str | None
    text: str | None
    log_format: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HashSettings:
    """What goes into the keys besides the tokens, as given by options."""

    tier: str | None
    identity: tuple[str, ...]
    algorithm: str | None
    seed: str | None
    python: str | None
    root: str | None
    lora_id: int | None
    lookahead: int
    bigram: bool
    partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedPrompt:
    """A prompt's chain: (digest, published form or None, end in tokens) of each block."""

    chain: str
    algorithm: str
    root: str
    block_size: int
    num_prompt_tokens: int
    blocks: tuple[tuple[str, str | None, int], ...]
    notes: tuple[str, ...]


def hashed(
    source: Source, settings: HashSettings, file: Path | None, overrides: Overrides
) -> HashedPrompt:
    """Return the chain of the prompt that the options name. Raises UsageError for wrong ones."""
    if sum(given is not None for given in (source.log, source.ids, source.text)) != 1:
        raise UsageError("give one prompt: --ids, --text, or a log with --request")
    deployment = load_for([source.log] if source.log is not None else [], file, overrides)
    identity = _identity(settings.identity).filled(deployment.identity)
    if source.ids is not None:
        return _chain(
            _token_ids(_content(source.ids, "--ids")), None, identity, deployment, settings
        )
    if source.text is not None:
        prompt = _replayed(_text_request(_content(source.text, "--text")), deployment)
    else:
        prompt = _from_log(source, deployment)
        identity = _identity(settings.identity).filled(prompt.request.identity)
    if isinstance(prompt.tokens, BlockHashes):
        raise UsageError(
            "the record holds block ids, not tokens; a chain can't be computed from it"
        )
    return _chain(prompt.tokens, prompt, identity, deployment, settings)


def _chain(
    tokens: TokenArray,
    prompt: Prompt | None,
    identity: Identity,
    deployment: Deployment,
    settings: HashSettings,
) -> HashedPrompt:
    media = () if prompt is None else prompt.media
    profile = deployment.engine
    block_size = deployment.block_size
    if profile is None:
        from prefixaudit.analysis.sizing import ASSUMED_BLOCK_SIZE
        from prefixaudit.chain.canonical import canonical_chain, root_digest

        notes = () if block_size else (f"block size {ASSUMED_BLOCK_SIZE} assumed (--block-size)",)
        size = block_size or ASSUMED_BLOCK_SIZE
        of = identity if settings.identity else None
        digests = canonical_chain(tokens, size, of, media)
        return HashedPrompt(
            chain="canonical, complete identity" if of else "canonical, tokens and media",
            algorithm="sha256",
            root=root_digest(of).hex(),
            block_size=size,
            num_prompt_tokens=len(tokens),
            blocks=tuple(
                (digest.hex(), None, (number + 1) * size) for number, digest in enumerate(digests)
            ),
            notes=notes,
        )
    from prefixaudit.chain.recipes import ChainOptions, chain_of

    size = profile.default_block_size if block_size is None else block_size
    chain = chain_of(
        tokens,
        profile,
        ChainOptions(
            algorithm=settings.algorithm or deployment.engine_settings.get("hash_algorithm"),
            seed=settings.seed or deployment.engine_settings.get("hash_seed"),
            python=settings.python,
            root=settings.root,
            model=_known(identity, "model"),
            model_revision=_known(identity, "model_revision"),
            lora_name=_known(identity, "lora_name"),
            lora_path=_known(identity, "lora_path"),
            lora_id=settings.lora_id,
            cache_salt=_known(identity, "cache_salt"),
            extra_key=_known(identity, "extra_key"),
            media=media,
            lookahead_tokens=settings.lookahead,
            is_bigram=settings.bigram,
            includes_partial_block=settings.partial,
        ),
        block_size=size,
        tier=settings.tier,
    )
    version = f" {profile.facts_version}" if profile.facts_version else ""
    return HashedPrompt(
        chain=f"{profile.name}{version}",
        algorithm=chain.algorithm,
        root=chain.root,
        block_size=size,
        num_prompt_tokens=len(tokens),
        blocks=tuple((block.digest, block.published, block.end) for block in chain.blocks),
        notes=profile.notes,
    )


def as_json(result: HashedPrompt) -> str:
    """Return the chain as indented JSON."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "chain": result.chain,
        "algorithm": result.algorithm,
        "root": result.root,
        "block_size": result.block_size,
        "num_prompt_tokens": result.num_prompt_tokens,
        "blocks": [
            {"digest": digest, "published": published, "end_tokens": end}
            for digest, published, end in result.blocks
        ],
        "notes": list(result.notes),
    }
    return json_text(values)


def as_text(result: HashedPrompt) -> str:
    """Return the chain as a table; digests are never shortened."""
    rest = result.num_prompt_tokens - (result.blocks[-1][2] if result.blocks else 0)
    lines = [
        f"{result.chain}, {result.algorithm}, {result.block_size}-token blocks",
        f"{result.num_prompt_tokens:,} tokens: {len(result.blocks):,} blocks, {rest:,} tokens over",
        f"root {result.root}",
    ]
    lines += [f"note: {note}" for note in result.notes]
    if result.blocks:
        is_published = any(
            published not in (None, digest) for digest, published, _ in result.blocks
        )
        heads = ("block", "tokens", "digest")
        rows = []
        start = 0
        for number, (digest, published, end) in enumerate(result.blocks):
            row = (f"{number}", f"{start}-{end - 1}", digest)
            rows.append((*row, published or "") if is_published else row)
            start = end
        table = Table(
            heads=(*heads, "published") if is_published else heads,
            rows=tuple(rows),
            right=frozenset({0, 1}),
        )
        lines += ["", *lines_of(table, width=400)]
    return "\n".join(lines)


def _known(identity: Identity, name: str) -> str | None:
    value = getattr(identity, name)
    return value if isinstance(value, str) else None


def _identity(pairs: tuple[str, ...]) -> Identity:
    values: dict[str, str | None] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        name = name.replace("-", "_")
        if not sign:
            raise UsageError(f"--identity {name}: expected FIELD=VALUE")
        if name not in IDENTITY_FIELDS:
            raise UsageError(unknown_name("identity field", name, IDENTITY_FIELDS))
        values[name] = value or None  # `FIELD=`: known to be absent
    return Identity(**values)


def _content(argument: str, option: str) -> str:
    """Return an option's value; `@FILE` and `-` are read."""
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if argument.startswith("@"):
            return Path(argument[1:]).read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{option} {argument}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{option} {argument}: is not UTF-8") from None
    return argument


def _token_ids(text: str) -> TokenArray:
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    numbers = []
    for place, word in enumerate(words):
        if not (word.isascii() and word.isdecimal()) or int(word) > _MAX_TOKEN_ID:
            raise UsageError(f"--ids: entry {place} is no token id; expected 0 to {_MAX_TOKEN_ID}")
        numbers.append(int(word))
    return np.array(numbers, dtype=np.uint32)


def _text_request(text: str) -> Request:
    return Request(request_id="text", source=Place("--text", 1), prompt=RawText(text=text))


def _replayed(request: Request, deployment: Deployment) -> Prompt:
    from prefixaudit.analysis.pipeline import replay_options_for
    from prefixaudit.prompts import Replayer

    options = replay_options_for(deployment, encode_generated=False)
    prompt = Replayer(deployment.model_dir, options).replay(request)
    if isinstance(prompt, Skipped):
        raise IncompleteError(f"{prompt.source}: {prompt.kind}: {prompt.reason}")
    return prompt


def _from_log(source: Source, deployment: Deployment) -> Prompt:
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.logs import read_logs

    assert source.log is not None
    if source.request is None:
        raise UsageError("a log needs --request ID (or its line) to name the record")
    options = AnalysisOptions(log_format=source.log_format).read_options(deployment)
    for item in read_logs([source.log], options):
        is_line = source.request == str(item.source.line)
        if isinstance(item, Skipped):
            if is_line:
                raise IncompleteError(f"{item.source}: {item.kind}: {item.reason}")
        elif is_line or item.request_id == source.request:
            return _replayed(deployment.complete(item), deployment)
    raise UsageError(f"{source.log}: no request '{source.request}', by id or line")
