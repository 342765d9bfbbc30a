"""Repairs that need what earlier requests held: messages, answers, and where a prompt ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from prefixaudit.core.request import ChatMessages, PromptInput, RawText, Request, TokenIds
from prefixaudit.core.unknown import Unknown
from prefixaudit.prompts import Refusal, Replayer
from prefixaudit.why.explaining import Explained
from prefixaudit.why.rendering import fields_of, number_of
from prefixaudit.why.structure import arguments_of, canonical

WINDOW_STEP: Final = 4

Repaired: TypeAlias = tuple[PromptInput, float | Unknown]


@dataclass(slots=True)
class WindowInSteps:
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
class KeepMessages:
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
        number = None if pair is None else number_of(request, pair.place)
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
class KeepArguments:
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
        number = None if pair is None else number_of(request, pair.place)
        if pair is not None and number is not None:
            calls = chat.messages[number].get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                sent = arguments_of(call)
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
class AppendOnly:
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
            repaired = as_text(chat, text)
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


def as_text(chat: ChatMessages, text: str) -> RawText:
    return RawText(text=text, add_special_tokens=chat.add_special_tokens)
