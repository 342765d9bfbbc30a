"""Prompts as text again, and the field of the request that each part of the text comes from."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prefixaudit.core.request import ChatMessages, RawText, Request, TokenIds
from prefixaudit.prompts import Refusal, Replayer
from prefixaudit.why.runs import Remembered

_KEPT_TEXTS: Final = 16
_MESSAGE: Final = re.compile(r"messages\[(\d+)\]")
REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class FieldSpan:
    """Characters [start, end) of a prompt's text are the value of a request's field."""

    path: str
    start: int
    end: int
    message: int


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt's text: [0, prompt_end) was sent, what follows was generated and is cached."""

    text: str
    prompt_end: int


class Texts:
    """Renders remembered prompts; keeps the last few."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer
        self._kept: OrderedDict[int, Text | None] = OrderedDict()

    def of(self, entry: Remembered) -> Text | None:
        """Return a prompt's text with its answer, None where there is no text to be had."""
        if entry.position in self._kept:
            self._kept.move_to_end(entry.position)
            return self._kept[entry.position]
        found = self._rendered(entry)
        self._kept[entry.position] = found
        if len(self._kept) > _KEPT_TEXTS:
            self._kept.popitem(last=False)
        return found

    def rendered(self, request: Request) -> str | None:
        """Return the text of a request, None where it has none."""
        try:
            return self._replayer.render(request).text
        except Refusal:
            return None

    def _rendered(self, entry: Remembered) -> Text | None:
        match entry.request.prompt:
            case RawText(text=text):
                pass
            case ChatMessages():
                found = self.rendered(entry.request)
                if found is None:
                    return None
                text = found
            case _:
                whole = self._decoded(entry, 0, entry.num_tokens)
                if whole is None:
                    return None
                sent = self._decoded(entry, 0, entry.num_prompt_tokens)
                return Text(whole, len(whole if sent is None else sent))
        # All of the answer: its last token isn't cached, but the text it ends is what was written.
        return Text(text + self._answer(entry), len(text))

    def _answer(self, entry: Remembered) -> str:
        if entry.num_tokens == entry.num_prompt_tokens:
            return ""
        match entry.request.generated:
            case RawText(text=text):
                return text
            case TokenIds(token_ids=ids):
                try:
                    return self._replayer.encoder.decode(ids)
                except Refusal:
                    return ""
            case _:
                return ""

    def _decoded(self, entry: Remembered, start: int, end: int) -> str | None:
        if entry.media or start >= end:
            return None if entry.media else ""
        try:
            return self._replayer.encoder.decode(entry.tokens()[start:end])
        except Refusal:
            return None


def common_text_length(first: str, second: str) -> int:
    """Return the number of leading characters that two texts share (by halving: no loop)."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    low, step = 0, 256
    while first.startswith(second[low : low + step], low) and low + step < length:
        low += step
        step *= 2
    high = min(low + step, length)
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low + (first[low : low + 1] == second[low : low + 1])


def fields_of(request: Request, text: str) -> list[FieldSpan]:
    """Return where the fields of a chat's messages stand in its text, in order.

    Fields are looked for one after another, as templates print messages in order; a field that a
    template leaves out or changes isn't found.
    """
    chat = request.prompt
    if not isinstance(chat, ChatMessages):
        return []
    found: list[FieldSpan] = []
    cursor = 0
    for number, message in enumerate(chat.messages):
        ends = [cursor]
        for path, values in _leaves(message):
            for value in values:
                start = text.find(value, cursor) if value else -1
                if start >= 0:
                    end = start + len(value)
                    found.append(FieldSpan(path_of(request, number, path), start, end, number))
                    ends.append(end)
                    break
        cursor = max(ends)
    return sorted(found, key=lambda span: span.start)


def field_at(spans: list[FieldSpan], place: int) -> FieldSpan | None:
    """Return the field that holds a character; the one that just ended there, else."""
    just_ended = None
    for span in spans:
        if span.start <= place < span.end:
            return span
        if span.end == place:
            just_ended = span
    return just_ended


def path_of(request: Request, number: int, path: str = "") -> str:
    """Return a field's name as the client wrote it; `number` counts the chat's messages from 0.

    The Messages API keeps `system` apart; its other messages can become several each, so their
    numbers are the chat's, less the system message.
    """
    number -= _has_system_apart(request)
    if number < 0:
        return "system"
    return f"messages[{number}]" + (f".{path}" if path else "")


def number_of(request: Request, path: str) -> int | None:
    """Return the number of the chat's message that a path (of `path_of`) is in, None for none."""
    if path.startswith("system"):
        return 0
    found = _MESSAGE.match(path)
    return None if found is None else int(found[1]) + _has_system_apart(request)


def _has_system_apart(request: Request) -> bool:
    chat = request.prompt
    return (
        request.endpoint == "/v1/messages"
        and isinstance(chat, ChatMessages)
        and chat.messages[0].get("role") == "system"
    )


def tools_area(chat: ChatMessages, text: str) -> tuple[int, int] | None:
    """Return about where the tool definitions stand in the text, None where they aren't found."""
    places = []
    for tool in chat.tools or ():
        for name in _tool_texts(tool):
            start = text.find(name)
            if start >= 0:
                places.append((start, start + len(name)))
                break
    if not places:
        return None
    return min(start for start, _ in places), max(end for _, end in places)


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return a tool's name, "" where it has none."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def _tool_texts(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a template may have printed of a tool: all of it, its function, its name."""
    function = tool.get("function")
    for value in (tool, function) if isinstance(function, Mapping) else (tool,):
        for indent in (None, 4, 2):
            yield json.dumps(value, ensure_ascii=False, indent=indent)
    name = tool_name(tool)
    if name:
        yield f'"{name}"'
        yield name


def _leaves(message: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a message's texts: the field's path in it, and the forms in which it may be printed."""
    for name in REASONING_FIELDS:
        if isinstance(message.get(name), str):
            yield name, _forms(message[name])
    content = message.get("content")
    if isinstance(content, str):
        yield "content", _forms(content)
    elif isinstance(content, list):
        for number, part in enumerate(content):
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield f"content[{number}].text", _forms(part["text"])
    calls = message.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments = function.get("arguments")
        path = f"tool_calls[{number}].function"
        if isinstance(function.get("name"), str):
            yield f"{path}.name", (function["name"],)
        if arguments is not None:
            yield f"{path}.arguments", _argument_forms(arguments)


def _forms(value: str) -> tuple[str, ...]:
    stripped = value.strip()
    return (value,) if stripped == value else (value, stripped)


def _argument_forms(arguments: Any) -> tuple[str, ...]:
    if isinstance(arguments, str):
        forms = [arguments]
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return tuple(forms)
    else:
        forms = []
    for ascii_only in (False, True):
        forms.append(json.dumps(arguments, ensure_ascii=ascii_only))
        forms.append(json.dumps(arguments, ensure_ascii=ascii_only, separators=(",", ":")))
    return tuple(dict.fromkeys(forms))
