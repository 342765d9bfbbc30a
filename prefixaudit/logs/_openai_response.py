"""What the server answered: usage, and the text or ids that it generated.

A logged response is one object, the list of a stream's chunks, or either as text (JSON, or the
`data:` lines of the stream).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from prefixaudit.core.request import NO_USAGE, Generated, RawText, TokenIds, Usage
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._fields import known_count, token_ids

Objects = list[Mapping[str, Any]]


def response_objects(value: Any) -> Objects:
    """Return the response's objects: one, or a stream's chunks; none where it can't be read."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, list):
        return [_of_event(item) for item in value if isinstance(item, dict)]
    if not isinstance(value, dict):
        return []
    inner = value.get("body")
    if inner is not None and "choices" not in value:
        return response_objects(inner) or [value]
    return [value]


def usage_of(objects: Objects) -> Usage:
    """Return the usage of the last object that has one (a stream's last chunk).

    Cached tokens are None where the server wrote null for them or for their details, UNKNOWN where
    it wrote neither. A `usage` of null says nothing. Anthropic's names are added up: there, input
    tokens don't include what was read from or written to the cache.
    """
    usages = [item["usage"] for item in objects if isinstance(item.get("usage"), dict)]
    if usages:
        # Anthropic's streams say how long the prompt is in their first event only.
        first, last = usages[0], usages[-1]
        return _usage({**first, **last} if "input_tokens" in first else last)
    for item in reversed(objects):
        info = item.get("meta_info")
        if isinstance(info, dict):
            return _usage(info)
    return NO_USAGE


def generated_of(objects: Objects) -> Generated | Unknown:
    """Return the first choice's answer, as ids where they were logged, else as text.

    UNKNOWN where the text isn't all that was generated: tool calls and reasoning are taken out of
    it by the server's parsers.
    """
    ids: list[int] = []
    text: list[str] = []
    has_answer = False
    for item in objects:
        parts = _parts(item)
        if parts is not None:
            return _joined_text(parts)
        for choice in _choices(item):
            if choice.get("index", 0) not in (0, None):
                continue
            has_answer = True
            if isinstance(choice.get("token_ids"), list):
                ids += choice["token_ids"]
            message = choice.get("message", choice.get("delta"))
            if message is None:
                content = choice.get("text")
            elif isinstance(message, dict):
                if any(message.get(name) for name in _TAKEN_OUT):
                    text = []
                    has_answer = bool(ids)
                    continue
                content = message.get("content")
            else:
                content = None
            if isinstance(content, str):
                text.append(content)
    if ids:
        return TokenIds(token_ids=token_ids(ids, "token_ids"))
    if not has_answer or not text:
        return UNKNOWN
    return RawText(text="".join(text), add_special_tokens=False)


_TAKEN_OUT = ("tool_calls", "function_call", "reasoning_content", "reasoning")


def _parts(item: Mapping[str, Any]) -> list[Any] | None:
    """Return the content blocks of an answer of the Messages or the Responses API."""
    if isinstance(item.get("output"), list):
        return [
            part
            for output in item["output"]
            if isinstance(output, dict)
            for part in (output["content"] if isinstance(output.get("content"), list) else [output])
        ]
    if item.get("role") == "assistant" and isinstance(item.get("content"), list):
        return item["content"] or None  # empty where a stream begins
    return None


def _joined_text(parts: list[Any]) -> Generated | Unknown:
    texts = [
        part.get("text")
        for part in parts
        if isinstance(part, dict) and part.get("type") in ("text", "output_text")
    ]
    known = [text for text in texts if isinstance(text, str)]
    if not known or len(known) != len(parts):
        return UNKNOWN  # a call of a tool, or reasoning: not all that was generated
    return RawText(text="".join(known), add_special_tokens=False)


def _from_text(text: str) -> Objects:
    try:
        return response_objects(orjson.loads(text))
    except orjson.JSONDecodeError:
        pass
    objects: Objects = []
    for line in text.splitlines():
        if line.startswith("data:"):
            try:
                value = orjson.loads(line.removeprefix("data:").strip())
            except orjson.JSONDecodeError:
                continue
            if isinstance(value, dict):
                objects.append(_of_event(value))
    return objects


def _of_event(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an event of a stream carries: the message or response that begins or ends."""
    for name in ("response", "message"):
        inner = item.get(name)
        if isinstance(inner, dict) and isinstance(item.get("type"), str) and "choices" not in item:
            return inner
    return item


def _choices(item: Mapping[str, Any]) -> Objects:
    choices = item.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def _usage(usage: Mapping[str, Any]) -> Usage:
    is_outside = False
    if "prompt_tokens" in usage or "input_tokens" not in usage:
        prompt = known_count(usage, "prompt_tokens")
        completion = known_count(usage, "completion_tokens")
    else:
        prompt = known_count(usage, "input_tokens")
        completion = known_count(usage, "output_tokens")
        if isinstance(prompt, int) and "input_tokens_details" not in usage:
            outside = [
                known_count(usage, name)
                for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
            ]
            is_outside = isinstance(outside[0], int)
            prompt += sum(count for count in outside if isinstance(count, int))
    return Usage(
        num_prompt_tokens=prompt,
        num_cached_tokens=_cached(usage),
        num_completion_tokens=completion,
        counted_outside=is_outside,
    )


def _cached(usage: Mapping[str, Any]) -> Known[int]:
    for name in ("prompt_tokens_details", "input_tokens_details"):
        if name in usage:
            details = usage[name]
            if details is None:
                return None
            if isinstance(details, dict) and "cached_tokens" in details:
                return known_count(details, "cached_tokens")
    for name in ("cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"):
        if name in usage:
            return known_count(usage, name)
    return UNKNOWN
