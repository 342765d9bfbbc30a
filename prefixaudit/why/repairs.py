"""Requests as they would be without a cause, for a replay of the whole log.

A repair is shown every request of the log, in order, and returns the prompt to replay instead. It
changes what the cause names and nothing else; where a request doesn't have it, the prompt stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import (
    ChatMessages,
    PromptInput,
    RawText,
    Request,
    TokenIds,
)
from prefixaudit.core.unknown import Unknown
from prefixaudit.core.why import UnstableCause
from prefixaudit.prompts import Refusal, Replayer
from prefixaudit.why.explaining import Explained
from prefixaudit.why.rendering import common_text_length, fields_of, tool_name
from prefixaudit.why.structure import canonical
from prefixaudit.why.volatile import clock_at, line_around

WINDOW_STEP: Final = 4
_MESSAGE: Final = re.compile(r"messages\[(\d+)\]")
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s)\s*|\n+")

Repaired: TypeAlias = tuple[PromptInput, float | Unknown]
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
            number = _message_number(cause.place)
            if number is None:
                return None
            mover = _MoveText(number, _characters(pairs), is_clock=cause.kind == "clock")
            return Planned("moved to the newest user message", mover)
        case "billing-header":
            return Planned("the header's line left out", _drop_billing_line)
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
            return Planned(about, _WindowInSteps(pairs))
        case "arguments-reserialised":
            return Planned("arguments kept as written", _KeepArguments(pairs, replayer))
        case "template-clock":
            return Planned("the date pinned to that of the first request", _PinnedClock())
        case "tools-moved":
            return Planned("tool definitions printed first, one a line", _ToolsFirst(replayer))
        case "reasoning-dropped" | "message-edited" | "whitespace" | "image-changed" if (
            cause.source == "client"
        ):
            return Planned("messages sent back as before", _KeepMessages(pairs))
        case "reasoning-dropped" | "generation-prompt" | "history-rewritten":
            return Planned(
                "each prompt goes on where the earlier one ended",
                _AppendOnly(pairs, replayer, cache_generated=cache_generated),
            )
        case _:
            return None


def _message_number(place: str) -> int | None:
    if place.startswith("system"):
        return 0
    found = _MESSAGE.match(place)
    return None if found is None else int(found[1])


def _characters(pairs: Mapping[int, Explained]) -> dict[int, int]:
    """Return where in the field both sides of each pair part: they agree before it."""
    found: dict[int, int] = {}
    for pair in pairs.values():
        if pair.character is not None:
            found.setdefault(pair.relative, pair.character)
            found[pair.position] = pair.character
    return found


def _with_content(chat: ChatMessages, number: int, content: Any) -> ChatMessages:
    messages = list(chat.messages)
    messages[number] = {**messages[number], "content": content}
    return replace(chat, messages=messages)


@dataclass(frozen=True, slots=True)
class _MoveText:
    """Moves the sentence or line that holds a value to the front of the newest user message."""

    number: int
    characters: Mapping[int, int]
    is_clock: bool

    def __call__(self, request: Request, position: int) -> Repaired:
        chat, place = request.prompt, self.characters.get(position)
        if not isinstance(chat, ChatMessages) or place is None:
            return chat, request.arrival_s
        content = (
            chat.messages[self.number].get("content")
            if (self.number < len(chat.messages))
            else None
        )
        newest = next(
            (n for n in range(len(chat.messages) - 1, -1, -1)
             if chat.messages[n].get("role") == "user"
             and isinstance(chat.messages[n].get("content"), str)),
            None,
        )  # fmt: skip
        if not isinstance(content, str) or newest is None:
            return chat, request.arrival_s
        start, end = place, place
        if self.is_clock:
            found = clock_at(content, place)
            if found is not None:
                start, end = found[:2]
        start, end = _sentence(content, start, end)
        moved, rest = content[start:end], content[:start] + content[end:]
        if newest == self.number:
            repaired = _with_content(chat, newest, f"{rest} {moved}")
        else:
            behind = chat.messages[newest]["content"]
            repaired = _with_content(chat, self.number, rest)
            repaired = _with_content(repaired, newest, moved + behind)
        return repaired, request.arrival_s


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the sentence (of one line) that holds [start, end), with the space behind it."""
    line_start, _ = line_around(text, start)
    begin = line_start
    for match in _SENTENCE_END.finditer(text, line_start, start):
        begin = match.end()
    stop = _SENTENCE_END.search(text, end)
    return begin, len(text) if stop is None else stop.end()


def _drop_billing_line(request: Request, position: int) -> Repaired:
    chat = request.prompt
    if not isinstance(chat, ChatMessages):
        return chat, request.arrival_s
    content = chat.messages[0].get("content")
    if isinstance(content, str):
        lines = content.splitlines(keepends=True)
        kept = [line for line in lines if "billing-header" not in line.lower()]
        if len(kept) < len(lines):
            chat = _with_content(chat, 0, "".join(kept))
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
class _WindowInSteps:
    """Lets the window's start move in steps, with the messages that earlier requests had."""

    pairs: Mapping[int, Explained]
    histories: dict[int, tuple[list[Mapping[str, Any]], int]] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.wanted = {pair.relative for pair in self.pairs.values()} - set(self.pairs)

    def __call__(self, request: Request, position: int) -> Repaired:
        chat = request.prompt
        if not isinstance(chat, ChatMessages):
            return chat, request.arrival_s
        pair = self.pairs.get(position)
        if pair is None:
            if position in self.wanted:
                self.histories[position] = list(chat.messages), 0
            return chat, request.arrival_s
        kept, dropped = int(pair.details["num_kept"]), int(pair.details["num_dropped"])
        whole, before = self.histories.get(pair.relative, (list(chat.messages), 0))
        start = before + dropped
        # `whole` are all messages there ever were: those kept in front, then the history.
        whole = [*whole[: kept + start], *chat.messages[kept:]]
        self.histories[position] = whole, start
        stepped = start // WINDOW_STEP * WINDOW_STEP
        messages = [*chat.messages[:kept], *whole[kept + stepped :]]
        return replace(chat, messages=messages), request.arrival_s


@dataclass(slots=True)
class _KeepMessages:
    """Sends a changed message as its relative had it, here and in every later request."""

    pairs: Mapping[int, Explained]
    messages: dict[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    originals: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.wanted = {pair.relative for pair in self.pairs.values()}

    def __call__(self, request: Request, position: int) -> Repaired:
        chat = request.prompt
        if not isinstance(chat, ChatMessages):
            return chat, request.arrival_s
        pair = self.pairs.get(position)
        number = None if pair is None else _message_number(pair.place)
        earlier = None if pair is None else self.messages.get(pair.relative)
        if (
            number is not None
            and earlier is not None
            and (number < min(len(earlier), len(chat.messages)))
        ):
            self.originals[canonical(chat.messages[number])] = earlier[number]
        if self.originals:
            messages = [
                self.originals.get(canonical(message), message) for message in chat.messages
            ]
            chat = replace(chat, messages=messages)
        if position in self.wanted:
            self.messages[position] = chat.messages
        return chat, request.arrival_s


@dataclass(slots=True)
class _KeepArguments:
    """Sends tool arguments back as the answer had them, here and in every later request."""

    pairs: Mapping[int, Explained]
    replayer: Replayer
    answers: dict[int, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.wanted = {pair.relative for pair in self.pairs.values()}

    def __call__(self, request: Request, position: int) -> Repaired:
        if position in self.wanted:
            self.answers[position] = _answer_text(request, self.replayer)
        chat = request.prompt
        if not isinstance(chat, ChatMessages):
            return chat, request.arrival_s
        pair = self.pairs.get(position)
        number = None if pair is None else _message_number(pair.place)
        if pair is not None and number is not None:
            for call in chat.messages[number].get("tool_calls") or ():
                sent = call.get("function", {}).get("arguments")
                found = _same_json(self.answers.get(pair.relative, ""), sent)
                if isinstance(sent, str) and found is not None:
                    self.written[sent] = found
        if self.written:
            chat = replace(chat, messages=[self._kept(message) for message in chat.messages])
        return chat, request.arrival_s

    def _kept(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            return message
        kept = []
        for call in calls:
            function = call.get("function") if isinstance(call, Mapping) else None
            sent = function.get("arguments") if isinstance(function, Mapping) else None
            if isinstance(function, Mapping) and isinstance(sent, str) and sent in self.written:
                call = {**call, "function": {**function, "arguments": self.written[sent]}}
            kept.append(call)
        return {**message, "tool_calls": kept}


def _answer_text(request: Request, replayer: Replayer) -> str:
    match request.generated:
        case RawText(text=text):
            return text
        case TokenIds(token_ids=ids):
            try:
                return replayer.encoder.decode(ids)
            except Refusal:
                return ""
        case _:
            return ""


def _same_json(answer: str, sent: Any) -> str | None:
    """Return the text in an answer that is the JSON value `sent`, written another way."""
    try:
        value = json.loads(sent)
    except (TypeError, ValueError, RecursionError):
        return None
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", answer):
        try:
            found, end = decoder.raw_decode(answer, match.start())
        except (ValueError, RecursionError):
            continue
        if found == value:
            return answer[match.start() : end]
    return None


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
        begin = self.replayer.files.special_tokens.get("bos_token", "")
        front = begin if begin and bare.startswith(begin) else ""
        moved = front + definitions + bare[len(front) :]
        return _as_text(chat, moved), request.arrival_s


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


@dataclass(slots=True)
class _AppendOnly:
    """Lets each prompt go on where its relative (and its answer) ended, as if nothing moved."""

    pairs: Mapping[int, Explained]
    replayer: Replayer
    cache_generated: bool
    texts: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.wanted = {pair.relative for pair in self.pairs.values()}

    def __call__(self, request: Request, position: int) -> Repaired:
        chat = request.prompt
        pair = self.pairs.get(position)
        if not isinstance(chat, ChatMessages) or (pair is None and position not in self.wanted):
            return chat, request.arrival_s
        try:
            text = self.replayer.render(request).text
        except Refusal:
            return chat, request.arrival_s
        repaired: PromptInput = chat
        if pair is not None and pair.relative in self.texts:
            text = self._continued(request, chat, text, pair.relative)
            repaired = _as_text(chat, text)
        if position in self.wanted:
            answer = _answer_text(request, self.replayer) if self.cache_generated else ""
            self.texts[position] = text + answer
            self.counts[position] = len(chat.messages) + bool(answer)
        return repaired, request.arrival_s

    def _continued(self, request: Request, chat: ChatMessages, text: str, relative: int) -> str:
        """Return the relative's text and, behind it, what this request's text has more."""
        before, count = self.texts[relative], self.counts[relative]
        spans = [span for span in fields_of(request, text) if span.message >= 0]
        answered = count > 0 and count > len(chat.messages)
        if answered:
            return text
        inside = [span.end for span in spans if span.message < count]
        behind = [span.start for span in spans if span.message >= count]
        is_answer = self.counts[relative] and before and count < len(chat.messages)
        cut = max(inside, default=0)
        if behind and is_answer and chat.messages[count].get("role") == "assistant":
            # No answer is cached: the history's answer stands where the prompt ended.
            cut = min(behind)
        rest = text[cut:]
        for length in range(min(len(rest), len(before), 64), 0, -1):
            if before.endswith(rest[:length]):
                return before + rest[length:]
        return before + rest


def _as_text(chat: ChatMessages, text: str) -> RawText:
    return RawText(text=text, add_special_tokens=chat.add_special_tokens)
