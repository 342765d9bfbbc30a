"""Small BlockTraces from plain lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import Request, Source, TokenIds
from prefixaudit.core.trace import BlockTrace


def make_trace(
    prompts: Sequence[Sequence[int]],
    *,
    block_size: int,
    answers: Sequence[Sequence[int]] | None = None,
    reads_cache: Sequence[bool] | None = None,
) -> BlockTrace:
    """Return the trace of prompts and of the answer tokens that have KV (the last has none)."""
    builder = TraceBuilder(block_size=block_size, cache_generated=True)
    for position, prompt in enumerate(prompts):
        token_ids = np.asarray(prompt, dtype=np.uint32)
        answer = None if answers is None else [*answers[position], 4_000_000]
        builder.add(
            Prompt(
                request=Request(
                    request_id=f"r{position}",
                    source=Source("log", position + 1),
                    prompt=TokenIds(token_ids=token_ids),
                    reads_cache=True if reads_cache is None else reads_cache[position],
                ),
                tokens=token_ids,
                num_prompt_tokens=len(prompt),
                generated_token_ids=None if answer is None else np.asarray(answer, np.uint32),
            ),
            position,
        )
    return builder.finish()
