"""What a log says, before any template or tokenizer was applied.

Every record of a log becomes one or more Requests, or one Skipped; nothing is lost in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.identity import UNKNOWN_IDENTITY, Identity
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown

TokenArray: TypeAlias = NDArray[np.uint32]
NO_MAPPING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a record stands: a file (or `<stdin>`) and its line, from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A record that gave no request.

    `kind` is a short name to count by (`invalid-json`, `cut-line`, `nul-bytes`, `no-prompt`,
    `template-error`, …); `reason` is for a person and holds no prompt text.
    """

    source: Source
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the server reported. None: it reported null. UNKNOWN: it reported nothing.

    Cached tokens are part of the prompt's; `counted_outside`: the server gave them beside it, and
    they were added.
    """

    num_prompt_tokens: Known[int] = UNKNOWN
    num_cached_tokens: Known[int] = UNKNOWN
    num_completion_tokens: Known[int] = UNKNOWN
    counted_outside: bool = False


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessages:
    """A chat body: decoded JSON with its keys in wire order, as the client sent them.

    `changes_media`: the body sets how media are read (`mm_processor_kwargs`, `media_io_kwargs`), so
    that their length in tokens isn't the model's default. `tool_choice` and `reasoning_effort` are
    the body's (None: absent or null); the effort is among `chat_template_kwargs` as well.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    changes_media: bool = False
    tool_choice: Any = None
    reasoning_effort: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawText:
    """A prompt as text. Special tokens are added by the tokenizer's own rule when asked for."""

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSpan:
    """One image, audio or video in the prompt: its content digest and its placeholder tokens."""

    identifier: str
    offset: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIds:
    """A prompt as token ids (uint32), with the media that placeholders among them stand for."""

    token_ids: TokenArray
    media: tuple[MediaSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHashes:
    """A prompt of a trace: an id a block (uint64), each identifying the block given its parent.

    The last id may stand for a partial block: len(hash_ids) is num_prompt_tokens / block_size,
    rounded down or up.
    """

    hash_ids: NDArray[np.uint64]
    block_size: int
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthOnly:
    """Only the prompt's length was logged: no reuse can be computed from it."""

    num_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReplayable:
    """The record is a request whose prompt isn't in it (cut, redacted, kept on the server …)."""

    kind: str
    reason: str


PromptInput: TypeAlias = (
    ChatMessages | RawText | TokenIds | BlockHashes | LengthOnly | NotReplayable
)
Generated: TypeAlias = RawText | TokenIds
"""The answer, as text or as ids; its tokens follow the prompt's in the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt of a log.

    `record` is the decoded record it came from, for the deployment's tenant rule; it's dropped
    (None) once the identity is filled. `headers` have lower-case names. `reads_cache` is False
    where the request switches cache reading off (vLLM's `prompt_logprobs`). `server` is the name
    of the deployment's server that got it.
    """

    request_id: str
    source: Source
    prompt: PromptInput
    arrival_s: float | Unknown = UNKNOWN
    identity: Identity = UNKNOWN_IDENTITY
    usage: Usage = NO_USAGE
    session_id: Known[str] = UNKNOWN
    parent_id: Known[str] = UNKNOWN
    endpoint: Known[str] = UNKNOWN
    generated: Generated | None | Unknown = UNKNOWN
    num_samples: int = 1
    reads_cache: bool = True
    server: str | Unknown = UNKNOWN
    headers: Mapping[str, str] = field(default_factory=lambda: NO_MAPPING, repr=False)
    record: Any = field(default=None, repr=False, compare=False)
