"""Requests as they would be without a cause, for a replay of the whole log.

A repair is shown every request of the log, in order, and returns the prompt to replay instead. It
changes what the cause names and nothing else; where a request doesn't have it, the prompt stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import (
    ChatMessages,
    RawText,
    Request,
)
from prefixaudit.core.unknown import Unknown
from prefixaudit.core.why import UnstableCause
from prefixaudit.prompts import Refusal, Replayer
from prefixaudit.why.explaining import Explained
from prefixaudit.why.history_repairs import (
    WINDOW_STEP,
    AppendOnly,
    KeepArguments,
    KeepMessages,
    Repaired,
    WindowInSteps,
    as_text,
)
from prefixaudit.why.rendering import common_text_length, number_of, tool_name
from prefixaudit.why.structure import canonical
from prefixaudit.why.volatile import clock_at, line_around

_TEXT_FIELD: Final = re.compile(r"messages\[\d+\]\.content(?:\[(\d+)\]\.text)?")
# Servers join it with what follows by a line feed, or by nothing.
_BILLING_HEADER: Final = re.compile(
    r"x-anthropic-billing-header:(?:\s*[\w-]+=[^;\n]*;)*[^\S\n]*\n?", re.IGNORECASE
)
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s)\s*|\n+")

Repair: TypeAlias = Callable[[Request, int], Repaired]
"""Takes a request and its position in the trace; returns its prompt, and the time it shows."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A repair and what it does, in words."""

    about: str
    repair: Repair


def plan_repair(
    cause: UnstableCause,
    explained: Sequence[Explained],
    replayer: Replayer,
    *,
    cache_generated: bool,
) -> Planned | None:
    """Return the repair of a cause, None where there is none that the log alone can show."""
    chosen = set(cause.positions)
    pairs = {pair.position: pair for pair in explained if pair.position in chosen}
    match cause.kind:
        case "clock" | "counter" | "random-id" | "path" | "git-status":
            mover = _MoveText(cause.place, _characters(pairs), is_clock=cause.kind == "clock")
            return Planned("moved to the newest user message", mover) if mover.can_move else None
        case "billing-header":
            return Planned("the header left out", _drop_billing_header)
        case "tool-order":
            return Planned("tools sorted by name", _sort_tools)
        case "schema-key-order":
            return Planned("tool schemas with sorted keys", _sort_keys)
        case "null-content" | "null-printed":
            return Planned("null content sent as an empty text", _empty_for_null)
        case "double-bos":
            return Planned("no begin token added", _without_special_tokens)
        case "window-slides":
            about = f"messages dropped {WINDOW_STEP} at a time"
            return Planned(about, WindowInSteps(pairs))
        case "arguments-reserialised":
            return Planned("arguments kept as written", KeepArguments(pairs, replayer))
        case "template-clock":
            return Planned("the date pinned to that of the first request", _PinnedClock())
        case "tools-moved":
            return Planned("tool definitions printed first, one a line", _ToolsFirst(replayer))
        case "reasoning-dropped" | "message-edited" | "whitespace" | "image-changed" if (
            cause.source == "client"
        ):
            return Planned("messages sent back as before", KeepMessages(pairs))
        case (
            "reasoning-dropped" | "generation-prompt" | "history-rewritten" | "arguments-reprinted"
        ):
            return Planned(
                "each prompt goes on where the earlier one ended",
                AppendOnly(pairs, replayer, cache_generated=cache_generated),
            )
        case _:
            return None


def _characters(pairs: Mapping[int, Explained]) -> dict[int, int]:
    """Return where in the field both sides of each pair part: they agree before it."""
    found: dict[int, int] = {}
    for pair in pairs.values():
        if pair.character is not None:
            found.setdefault(pair.relative, pair.character)
            found[pair.position] = pair.character
    return found


@dataclass(frozen=True, slots=True)
class _MoveText:
    """Moves the sentence or line that holds a value to the front of the newest user message."""

    place: str
    characters: Mapping[int, int]
    is_clock: bool

    @property
    def can_move(self) -> bool:
        """Say whether the place is one field of one message that can be cut."""
        return self.place.startswith("system") or _TEXT_FIELD.fullmatch(self.place) is not None

    def __call__(self, request: Request, position: int) -> Repaired:
        chat, place = request.prompt, self.characters.get(position)
        number = number_of(request, self.place)
        if not isinstance(chat, ChatMessages) or place is None or number is None:
            return chat, request.arrival_s
        found = _TEXT_FIELD.fullmatch(self.place)
        part = None if found is None or found[1] is None else int(found[1])
        text = _text_at(chat, number, part)
        newest = max(
            (other for other, message in enumerate(chat.messages) if message.get("role") == "user"),
            default=None,
        )
        if text is None or newest is None or place > len(text):
            return chat, request.arrival_s
        start, end = place, place
        clock = clock_at(text, place) if self.is_clock else None
        if clock is not None:
            start, end = clock[:2]
        start, end = _sentence(text, start, end)
        moved, rest = text[start:end], text[:start] + text[end:]
        if newest == number:
            return _with_text(chat, number, part, f"{rest} {moved}"), request.arrival_s
        repaired = _with_text(chat, number, part, rest)
        first = 0 if isinstance(chat.messages[newest].get("content"), list) else None
        behind = _text_at(chat, newest, first)
        if behind is None:
            return chat, request.arrival_s
        return _with_text(repaired, newest, first, moved + behind), request.arrival_s


def _text_at(chat: ChatMessages, number: int, part: int | None) -> str | None:
    """Return a message's text, or that of one of its parts; None where there is none."""
    if number >= len(chat.messages):
        return None
    content = chat.messages[number].get("content")
    if part is not None:
        parts = content if isinstance(content, list) else []
        chosen = parts[part] if part < len(parts) else None
        content = chosen.get("text") if isinstance(chosen, Mapping) else None
    return content if isinstance(content, str) else None


def _with_text(chat: ChatMessages, number: int, part: int | None, text: str) -> ChatMessages:
    messages = list(chat.messages)
    content: Any = text
    if part is not None:
        content = list(messages[number]["content"])
        content[part] = {**content[part], "text": text}
    messages[number] = {**messages[number], "content": content}
    return replace(chat, messages=messages)


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the sentence (of one line) that holds [start, end), with the space behind it."""
    line_start, _ = line_around(text, start)
    begin = line_start
    for match in _SENTENCE_END.finditer(text, line_start, start):
        begin = match.end()
    stop = _SENTENCE_END.search(text, end)
    return begin, len(text) if stop is None else stop.end()


def _drop_billing_header(request: Request, position: int) -> Repaired:
    chat = request.prompt
    if isinstance(chat, ChatMessages):
        text = _text_at(chat, 0, None)
        if text is not None and (kept := _BILLING_HEADER.sub("", text)) != text:
            chat = _with_text(chat, 0, None, kept)
    return chat, request.arrival_s


def _sort_tools(request: Request, position: int) -> Repaired:
    chat = request.prompt
    if isinstance(chat, ChatMessages) and chat.tools:
        tools = sorted(chat.tools, key=lambda tool: (tool_name(tool), canonical(tool)))
        chat = replace(chat, tools=tools)
    return chat, request.arrival_s


def _sort_keys(request: Request, position: int) -> Repaired:
    chat = request.prompt
    if isinstance(chat, ChatMessages) and chat.tools:
        chat = replace(chat, tools=[_sorted(tool) for tool in chat.tools])
    return chat, request.arrival_s


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _empty_for_null(request: Request, position: int) -> Repaired:
    chat = request.prompt
    if isinstance(chat, ChatMessages):
        messages = [
            {**message, "content": ""} if message.get("content", "") is None else message
            for message in chat.messages
        ]
        chat = replace(chat, messages=messages)
    return chat, request.arrival_s


def _without_special_tokens(request: Request, position: int) -> Repaired:
    prompt = request.prompt
    if isinstance(prompt, RawText | ChatMessages):
        prompt = replace(prompt, add_special_tokens=False)
    return prompt, request.arrival_s


@dataclass(slots=True)
class _PinnedClock:
    shown_s: float | Unknown | None = None

    def __call__(self, request: Request, position: int) -> Repaired:
        if self.shown_s is None:
            self.shown_s = request.arrival_s
        return request.prompt, self.shown_s


@dataclass(slots=True)
class _ToolsFirst:
    """Moves the text of the tool definitions to the prompt's front, behind the begin token."""

    replayer: Replayer

    def __call__(self, request: Request, position: int) -> Repaired:
        chat = request.prompt
        if not isinstance(chat, ChatMessages) or not chat.tools:
            return chat, request.arrival_s
        try:
            text = self.replayer.render(request).text
            bare = self.replayer.render(replace(request, prompt=replace(chat, tools=None))).text
        except Refusal:
            return chat, request.arrival_s
        start = common_text_length(text, bare)
        size = len(text) - len(bare)
        if size <= 0 or text[start + size :] != bare[start:]:
            return chat, request.arrival_s
        start = _block_start(text, start, size)
        definitions = text[start : start + size]
        for tool in chat.tools:
            printed = json.dumps(tool, ensure_ascii=False)
            definitions = definitions.replace(f"{printed}\n", printed)
            definitions = definitions.replace(printed, f"{printed}\n")
        begin = self.replayer.renderer.files.special_tokens.get("bos_token", "")
        front = begin if begin and bare.startswith(begin) else ""
        moved = front + definitions + bare[len(front) :]
        return as_text(chat, moved), request.arrival_s


def _block_start(text: str, start: int, size: int) -> int:
    """Return where a block that was put in begins: of the places that fit, before a marker.

    The text in front of a block can end as the block does (`<|`), so that it fits in several.
    """
    first = start
    while first > 0 and text[first - 1] == text[first + size - 1]:
        first -= 1
    for place in range(start, first - 1, -1):
        if text[place] in "<[" and (place == 0 or text[place - 1] in ">]\n "):
            return place
    return start
