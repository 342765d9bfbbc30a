"""Chats in records of gateways and observability tools: is what they kept the whole prompt?

Such tools cut long texts, put a word in the place of private ones, or keep none. A prompt that
isn't whole must not be replayed: cut ones look short and equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from prefixaudit.core.request import ChatMessages, NotReplayable, PromptInput, RawText, TokenIds
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._numbers import loads
from prefixaudit.logs._openai_body import CHAT, BodyReader, endpoint_of, is_body

_CUT_MARKS: Final = ("litellm_truncated", "<truncated due to size exceeding limit>")
_REDACTED: Final = frozenset(
    {"redacted-by-litellm", "[redacted]", "<redacted>", "redacted", "***", "[omitted]",
     "omitted by helicone"}
)  # fmt: skip
NOT_STORED: Final = NotReplayable(
    kind="no-prompt", reason="the record is of a request whose prompt wasn't stored"
)
RESPONSE_CACHE: Final = NotReplayable(
    kind="response-cache",
    reason="a cache of whole responses answered; the request didn't reach an engine",
)


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """What a tool kept of a request: its prompts, and the body they come from."""

    prompts: tuple[PromptInput, ...]
    body: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | None = None


def decoded(value: Any) -> Any:
    """Return a field's value, decoded where it is text that holds a JSON object or list."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def stored_prompt(
    value: Any,
    reader: BodyReader,
    *,
    path: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> StoredPrompt:
    """Return the prompt that a tool stored: a body, a list of messages, or text.

    `extra` holds fields of the body that the tool keeps apart, such as tools. Raises RecordError
    where a body isn't one that a server would take.
    """
    is_text = isinstance(value, str)
    value = decoded(value)
    if value is None or value in ("", {}, []):
        return StoredPrompt((NOT_STORED,))
    problem = not_whole(value)
    if problem is not None:
        return StoredPrompt((problem,))
    if isinstance(value, str):
        if is_text and value.lstrip()[:2] in ('{"', "[{"):
            reason = "the stored request is not whole JSON: it was cut"
            return StoredPrompt((NotReplayable(kind="cut-prompt", reason=reason),))
        return StoredPrompt((RawText(text=value),))
    if isinstance(value, list):
        if not all(isinstance(item, dict) and "role" in item for item in value):
            reason = "the stored prompt has a shape that isn't known"
            return StoredPrompt((NotReplayable(kind="unknown-shape", reason=reason),))
        value = {"messages": value}
    if not isinstance(value, dict):
        raise RecordError("no-prompt", "the stored prompt is neither text, messages nor a body")
    body = {**value, **{name: item for name, item in (extra or {}).items() if name not in value}}
    if not is_body(body) and isinstance(body.get("role"), str):
        body = {"messages": [value]}
    endpoint = endpoint_of(body, path)
    if endpoint is None:
        reason = "the stored prompt has a shape that isn't known"
        return StoredPrompt((NotReplayable(kind="unknown-shape", reason=reason),), body)
    return StoredPrompt(reader.prompts_of(body, endpoint), body, endpoint)


def not_whole(value: Any) -> NotReplayable | None:
    """Return why a stored prompt isn't the one that was sent; None where nothing shows it."""
    for text in _texts(value):
        if len(text) < 64 and text.strip().lower() in _REDACTED:
            return NotReplayable(kind="redacted", reason="the prompt's text was redacted")
        if any(mark in text for mark in _CUT_MARKS):
            return NotReplayable(kind="cut-prompt", reason="the logger cut the prompt's text")
    return None


def conversation_prompts(
    messages: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[ChatMessages, Mapping[str, Any] | None, int]]:
    """Yield each prompt of a recorded conversation, the answer to it, and the prompt's length.

    A prompt is what stands in front of an answer; the last one may have none. An answer with
    nothing in front of it is history and no more: its prompt was lost.
    """
    for place, message in enumerate(messages):
        is_answer = message["role"] == "assistant"
        if is_answer and place and messages[place - 1]["role"] != "assistant":
            yield ChatMessages(messages=messages[:place]), message, place
    if messages and messages[-1]["role"] != "assistant":
        yield ChatMessages(messages=messages), None, len(messages)


def is_chat_list(value: Any) -> bool:
    """Say whether a value is a list of messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in value)
    )


def endpoint_of_prompt(prompt: PromptInput) -> str | None:
    """Return the API of a prompt of which only its shape is known."""
    if isinstance(prompt, ChatMessages):
        return CHAT
    return "/v1/completions" if isinstance(prompt, RawText | TokenIds) else None


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
