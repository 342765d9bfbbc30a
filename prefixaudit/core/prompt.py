"""A request whose tokens are known: what `prompts` returns and `chain` takes."""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.core.request import BlockHashes, MediaSpan, Request, TokenArray
from prefixaudit.core.unknown import Unknown

__all__ = ["MediaSpan", "Prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Token ids (read-only uint32) of a request, or the block ids of a trace.

    `generated_token_ids` are the answer's ids, None where there is no answer and UNKNOWN where
    the log doesn't have it. `is_approximate` marks prompts whose media lengths aren't known.
    """

    request: Request
    tokens: TokenArray | BlockHashes
    num_prompt_tokens: int
    generated_token_ids: TokenArray | None | Unknown
    media: tuple[MediaSpan, ...] = ()
    is_approximate: bool = False
