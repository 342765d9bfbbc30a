"""Prompts for tests of the chain and the pool, with as few words as possible."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.identity import Identity
from prefixaudit.core.prompt import MediaSpan, Prompt
from prefixaudit.core.request import BlockHashes, Request, Source, TokenArray, TokenIds
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN, Unknown


def token_array(token_ids: Sequence[int]) -> TokenArray:
    return np.array(token_ids, dtype=np.uint32)


def token_prompt(
    token_ids: Sequence[int],
    *,
    name: str = "r",
    answer: Sequence[int] | None | Unknown = UNKNOWN,
    identity: Identity | None = None,
    session: str | None | Unknown = UNKNOWN,
    arrival_s: float | Unknown = UNKNOWN,
    reads_cache: bool = True,
    media: tuple[MediaSpan, ...] = (),
) -> Prompt:
    ids = token_array(token_ids)
    generated = answer if answer is None or answer is UNKNOWN else token_array(answer)
    return Prompt(
        request=Request(
            request_id=name,
            source=Source("log.jsonl", 1),
            prompt=TokenIds(token_ids=ids),
            arrival_s=arrival_s,
            identity=identity or Identity(),
            session_id=session,
            reads_cache=reads_cache,
        ),
        tokens=ids,
        num_prompt_tokens=len(ids),
        generated_token_ids=generated,
        media=media,
    )


def hash_prompt(
    hash_ids: Sequence[int],
    num_prompt_tokens: int,
    *,
    block_size: int = 512,
    name: str = "r",
    arrival_s: float | Unknown = UNKNOWN,
) -> Prompt:
    hashes = BlockHashes(
        hash_ids=np.array(hash_ids, dtype=np.uint64),
        block_size=block_size,
        num_prompt_tokens=num_prompt_tokens,
    )
    return Prompt(
        request=Request(
            request_id=name,
            source=Source("trace.jsonl", 1),
            prompt=hashes,
            arrival_s=arrival_s,
        ),
        tokens=hashes,
        num_prompt_tokens=num_prompt_tokens,
        generated_token_ids=UNKNOWN,
    )


def build(
    prompts: Iterable[Prompt], *, block_size: int = 4, cache_generated: bool = True
) -> BlockTrace:
    builder = TraceBuilder(block_size=block_size, cache_generated=cache_generated)
    for index, prompt in enumerate(prompts):
        builder.add(prompt, index)
    return builder.finish()


def mooncake_prompts(path: Path) -> list[Prompt]:
    """Read a Mooncake file the short way, without the readers under test elsewhere."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines()
    records = [json.loads(line) for line in lines]
    return [
        hash_prompt(
            record["hash_ids"],
            record["input_length"],
            name=str(place),
            arrival_s=record["timestamp"] / 1e3,
        )
        for place, record in enumerate(records)
    ]


def paths(trace: BlockTrace) -> list[list[int]]:
    """Return each request's block ids from the root on, read from the tree."""
    tree = trace.tree
    result = []
    for end in trace.node.tolist():
        path: list[int] = []
        node = end
        while node >= 0:
            first = int(tree.first_block[node])
            path = [*range(first, first + int(tree.num_blocks[node])), *path]
            node = int(tree.parent[node])
        result.append(path)
    return result
