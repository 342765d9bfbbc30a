"""Says how a pair of prompts differs where they part, and whether that is an unstable prefix.

First by JSON, where both are chats: what the client changed. What the client didn't change is the
template's doing, and both texts say what. Raw text has no fields; the runs that are found again
behind the parting say whether text was dropped, put in or replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, ChatMessages, RawText, Request
from prefixaudit.why.pairing import Pair
from prefixaudit.why.rendering import (
    FieldSpan,
    Text,
    Texts,
    common_text_length,
    field_at,
    fields_of,
    tools_area,
)
from prefixaudit.why.structure import (
    MessagesChange,
    changed_field,
    compare_messages,
    compare_tools,
)
from prefixaudit.why.volatile import Volatile, find_volatile

# Behind a volatile value the prompts soon agree again; a repository's state takes some lines.
_VALUE_TOKENS = 96
_SMALL_TOKENS = 2_048
# Below it, what two prompts begin with alike is a header, not a text of their own.
_SAME_BEGINNING_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One unstable pair: positions in the trace, and what differs where."""

    position: int
    relative: int
    kind: str
    place: str
    source: str | None = None
    period_s: float | None = None
    first_token: int
    character: int | None = None
    num_lost_tokens: int
    details: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    kind: str
    place: str
    source: str | None = None
    period_s: float | None = None
    character: int | None = None
    details: Mapping[str, int | str] = field(default_factory=dict)


class Explainer:
    """Call it with pairs; `explained` holds those that are unstable."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.explained: list[Explained] = []
        self._prints_null: dict[tuple[object, ...], bool] = {}

    def __call__(self, pair: Pair) -> bool:
        found = self._find(pair)
        if found is None:
            return False
        self.explained.append(
            Explained(
                position=pair.reader.position,
                relative=pair.relative.position,
                kind=found.kind,
                place=found.place,
                source=found.source,
                period_s=found.period_s,
                first_token=pair.num_shared,
                character=found.character,
                num_lost_tokens=pair.num_covered,
                details=found.details,
            )
        )
        return True

    def inspect(self, prompt: Prompt, position: int) -> None:
        """Note what is wrong with a prompt by itself: a second begin token, a null that is printed.

        `position` is the prompt's in the trace; call it after the pair was looked at.
        """
        if self.explained and self.explained[-1].position == position:
            return
        request = prompt.request
        if isinstance(request.prompt, RawText) and request.prompt.add_special_tokens:
            tokens = prompt.tokens
            if not isinstance(tokens, BlockHashes) and len(tokens) > 1 and tokens[0] == tokens[1]:
                self._add(position, "double-bos", "the prompt's first token", 1)
        elif isinstance(request.prompt, ChatMessages):
            place = self._printed_null(request, request.prompt)
            if place is not None:
                self._add(position, "null-printed", place, -1)

    def _add(self, position: int, kind: str, place: str, first_token: int) -> None:
        self.explained.append(
            Explained(
                position=position,
                relative=-1,
                kind=kind,
                place=place,
                first_token=first_token,
                num_lost_tokens=0,
            )
        )

    def _printed_null(self, request: Request, chat: ChatMessages) -> str | None:
        """Return the field whose null the template prints as a word, None where none does."""
        for number, message in enumerate(chat.messages):
            if message.get("content", "") is not None:
                continue
            key = (chat.chat_template, message.get("role"), bool(message.get("tool_calls")))
            prints = self._prints_null.get(key)
            if prints is None:
                prints = self._prints_null[key] = self._prints(request, chat, number)
            if prints:
                return f"messages[{number}].content"
        return None

    def _prints(self, request: Request, chat: ChatMessages, number: int) -> bool:
        """Say whether the template prints None where a message's content is null."""
        messages = list(chat.messages)
        messages[number] = {**messages[number], "content": ""}
        bare = replace(request, prompt=replace(chat, messages=messages))
        text, without = self.texts.rendered(request), self.texts.rendered(bare)
        if text is None or without is None:
            return False
        place = common_text_length(text, without)
        return text.startswith(("None", "null"), place) and text[place + 4 :] == without[place:]

    def _find(self, pair: Pair) -> _Found | None:
        if _adds_a_token(pair):
            return _Found("double-bos", "the prompt's first token")
        if _media_differ(pair):
            return _Found("image-changed", "the prompt's media")
        ours, theirs = pair.reader.request.prompt, pair.relative.request.prompt
        change = None
        if isinstance(ours, ChatMessages) and isinstance(theirs, ChatMessages):
            change = compare_messages(theirs.messages, ours.messages)
        later, earlier = self.texts.of(pair.reader), self.texts.of(pair.relative)
        if later is None or earlier is None:
            return _Found("tokens-differ", "the prompt") if pair.runs else None
        place = common_text_length(earlier.text, later.text[: later.prompt_end])
        if place == min(len(earlier.text), later.prompt_end):
            return self._same_text(pair, later, earlier)
        if change is not None:
            assert isinstance(ours, ChatMessages)
            assert isinstance(theirs, ChatMessages)
            return _in_chats(pair, later, earlier, place, change, ours, theirs)
        return self._in_text(pair, later, earlier, place)

    def _same_text(self, pair: Pair, later: Text, earlier: Text) -> _Found | None:
        """One text starts the other, and the tokens differ: at the seam, or in the answer."""
        if not pair.runs:
            return None
        return _Found("tokenizer-round-trip", "the answer of the earlier request")

    def _in_text(self, pair: Pair, later: Text, earlier: Text, place: int) -> _Found | None:
        """Explain raw text (or a chat against raw text) by what is found again behind."""
        if not pair.runs or pair.is_weak:
            return None
        where = "prompt"
        if (volatile := _volatile(pair, earlier, later, place)) is not None:
            return _Found(volatile.kind, where, period_s=volatile.period_s, character=place)
        first = pair.runs[0]
        starts_alike = pair.num_shared >= _SAME_BEGINNING_TOKENS
        if starts_alike and all(run.there >= pair.relative.num_prompt_tokens for run in pair.runs):
            # All that is found again was generated.
            if place >= earlier.prompt_end:
                return _Found("answer-rerendered", "start of the answer", character=place)
            if 2 * place >= earlier.prompt_end:
                return _Found("passing-instruction", where, character=place)
        num_new, num_gone = first.start - pair.num_shared, first.there - pair.num_shared
        if _is_reordered(pair) and _covers_most(pair):
            return _Found("passages-reordered", where, character=place)
        if not starts_alike:
            return _Found("same-text-elsewhere", where, character=place)
        # Tokens at the seam may be cut differently: a few are neither new nor gone.
        if num_new <= 4 < num_gone:
            return _Found("text-dropped", where, character=place)
        if num_gone <= 4 < num_new:
            return _Found("text-inserted", where, character=place)
        return _Found("text-replaced", where, character=place)


def _is_reordered(pair: Pair) -> bool:
    places = [run.there for run in pair.runs]
    return any(after < before for before, after in pairwise(places))


def _covers_most(pair: Pair) -> bool:
    """Say whether nearly all of the shorter prompt's rest stands in the other one too."""
    rest = min(pair.reader.num_prompt_tokens, pair.relative.num_prompt_tokens) - pair.num_shared
    return pair.num_covered >= 0.7 * rest


def _adds_a_token(pair: Pair) -> bool:
    """Say whether one prompt is the other with one more token in front of it, twice the same."""
    if pair.num_shared > 2 or not pair.runs:
        return False
    ours, theirs = pair.reader.tokens(), pair.relative.tokens()
    for longer, shorter in ((ours, theirs), (theirs, ours)):
        length = min(len(longer) - 1, len(shorter), 64)
        if (
            length > 1
            and longer[0] == longer[1]
            and (longer[1 : length + 1] == shorter[:length]).all()
        ):
            return True
    return False


def _media_differ(pair: Pair) -> bool:
    """Say whether the first differing token stands for media, and theirs were other ones."""
    place = pair.num_shared
    sides = (pair.reader.media, pair.relative.media)
    return any(
        span.offset <= place < span.offset + span.num_tokens for media in sides for span in media
    )


def _volatile(pair: Pair, earlier: Text, later: Text, place: int) -> Volatile | None:
    if not pair.runs:
        return None
    first = pair.runs[0]
    apart = max(first.start, first.there) - pair.num_shared
    found = find_volatile(earlier.text, later.text, place) if apart <= _SMALL_TOKENS else None
    if found is not None and found.kind != "git-status" and apart > _VALUE_TOKENS:
        return None
    return found


def _in_chats(
    pair: Pair,
    later: Text,
    earlier: Text,
    place: int,
    change: MessagesChange,
    ours: ChatMessages,
    theirs: ChatMessages,
) -> _Found | None:
    spans = fields_of(pair.reader.request, later.text)
    here = field_at(spans, place)
    tools, tool_index = compare_tools(theirs.tools, ours.tools)
    before_messages = here is None or here.message < change.first
    if tools != "same" and _in_tools(ours, later.text, place, spans, change):
        return _changed_tools(pair, tools, tool_index, theirs, ours, earlier, later, place)
    if before_messages and change.shape != "continues" and _arguments_differ(ours, theirs):
        return _Found("template-choice", "chat_template, its arguments or documents")
    changed_here = here is not None and here.message == change.first
    if change.shape in ("continues", "equal") or (before_messages and not changed_here):
        found = _by_template(pair, later, earlier, place, here, ours, change)
        if found is not None or change.shape in ("continues", "equal"):
            return found
    return _by_client(pair, later, earlier, place, change, ours, theirs, here)


def _in_tools(
    chat: ChatMessages, text: str, place: int, spans: list[FieldSpan], change: MessagesChange
) -> bool:
    """Say whether the prompts part in the tool definitions rather than in a message."""
    area = tools_area(chat, text)
    if area is None:
        return change.shape in ("continues", "equal")
    if change.shape in ("continues", "equal"):
        return True
    changed = [span.start for span in spans if span.message >= change.first]
    return (
        not changed
        or place < min(changed)
        or area[0] - 64 <= place <= area[1] + 4096 < min(changed)
    )


def _changed_tools(
    pair: Pair,
    how: str,
    index: int,
    theirs: ChatMessages,
    ours: ChatMessages,
    earlier: Text,
    later: Text,
    place: int,
) -> _Found | None:
    where = f"tools[{index}]"
    details: dict[str, int | str] = {"first_tool_index": index}
    if how == "order":
        return _Found("tool-order", where, details=details)
    if how == "key-order":
        return _Found("schema-key-order", where, details=details)
    if not pair.runs:
        return None
    volatile = _volatile(pair, earlier, later, place)
    if volatile is not None and len(ours.tools or ()) == len(theirs.tools or ()):
        return _Found(volatile.kind, where, period_s=volatile.period_s, details=details)
    details["num_tools_before"] = len(theirs.tools or ())
    details["num_tools_after"] = len(ours.tools or ())
    return _Found("tools-changed", where, details=details)


def _arguments_differ(ours: ChatMessages, theirs: ChatMessages) -> bool:
    return (
        ours.chat_template != theirs.chat_template
        or ours.chat_template_kwargs != theirs.chat_template_kwargs
        or ours.documents != theirs.documents
    )


def _by_template(
    pair: Pair,
    later: Text,
    earlier: Text,
    place: int,
    here: FieldSpan | None,
    ours: ChatMessages,
    change: MessagesChange,
) -> _Found | None:
    """Explain a difference that no field of the request explains."""
    where = "text of the chat template"
    if here is not None:
        where += f" at {here.path}"
    volatile = find_volatile(earlier.text, later.text, place)
    if volatile is not None and volatile.kind == "clock":
        return _Found("template-clock", where, period_s=volatile.period_s, character=None)
    if _arguments_differ_only_there(pair) and pair.runs:
        return _Found("template-choice", "chat_template, its arguments or documents")
    mine, other = tools_area(ours, later.text), tools_area(ours, earlier.text)
    if (
        mine is not None
        and other is not None
        and abs(mine[0] - other[0]) > 4
        and (min(mine[0], other[0]) <= place + 512 and place <= max(mine[1], other[1]))
    ):
        return _Found("tools-moved", "tool definitions")
    if change.shape not in ("continues", "equal"):
        return None
    answer = ours.messages[change.first] if change.first < len(ours.messages) else {}
    if place >= earlier.prompt_end:
        return _in_answer(pair, later, earlier, place, change, answer)
    rest = earlier.text[place : earlier.prompt_end]
    if _has_reasoning(ours, change.first) or _thinks(earlier.text[place:], answer):
        return _Found("reasoning-dropped", _message_place(pair, change.first))
    if len(rest) <= 256 and _is_tail(earlier, place, change, pair):
        tail = pair.relative.num_prompt_tokens - pair.num_shared
        details: dict[str, int | str] = {"num_tail_tokens": tail}
        return _Found("generation-prompt", "end of the generation prompt", details=details)
    anchor = rest[:64]
    if len(anchor) >= 24 and later.text.find(anchor, place) > 0:
        return _Found("text-moved", where)
    return _Found("history-rewritten", where)


def _message_place(pair: Pair, number: int) -> str:
    return f"messages[{number}] as the chat template prints it"


def _has_reasoning(chat: ChatMessages, number: int) -> bool:
    """Say whether the turns up to the new one carry reasoning that the template may leave out."""
    return any(
        message.get("reasoning_content")
        or message.get("reasoning")
        or (
            message.get("role") == "assistant"
            and isinstance(message.get("content"), str)
            and "</think>" in message["content"]
        )
        for message in chat.messages[: number + 1]
    )


def _thinks(rest: str, answer: Mapping[str, object]) -> bool:
    """Say whether the earlier prompt goes on with a thought that isn't an empty one."""
    marker = rest.find("</think>")
    if marker < 0:
        return False
    thought = rest[:marker].rpartition("<think>")[2]
    return bool(thought.strip())


def _is_tail(earlier: Text, place: int, change: MessagesChange, pair: Pair) -> bool:
    """Say whether the earlier prompt's messages all stand before `place`: only its end is left."""
    spans = fields_of(pair.relative.request, earlier.text[: earlier.prompt_end])
    return bool(spans) and max(span.end for span in spans) <= place


def _in_answer(
    pair: Pair,
    later: Text,
    earlier: Text,
    place: int,
    change: MessagesChange,
    answer: Mapping[str, object],
) -> _Found | None:
    """The prompts agree to the earlier one's end; the answer differs from what was generated."""
    spans = fields_of(pair.reader.request, later.text)
    for span in spans:
        if span.message == change.first and span.start <= place <= span.end:
            if span.path.endswith(".arguments"):
                try:
                    written, _ = json.JSONDecoder().raw_decode(earlier.text[span.start :])
                    sent = json.loads(later.text[span.start : span.end])
                except ValueError:
                    break
                if written == sent:
                    return _Found("arguments-reserialised", span.path, character=place - span.start)
            break
    if _thinks(earlier.text[place:], answer):
        return _Found("reasoning-dropped", _message_place(pair, change.first))
    if not pair.runs:
        return None
    here = field_at(spans, place)
    if here is None:
        return _Found("history-rewritten", _message_place(pair, change.first))
    volatile = _volatile(pair, earlier, later, place)
    if volatile is not None and volatile.kind == "whitespace":
        return _Found("whitespace", here.path, character=place - here.start)
    return _Found("message-edited", here.path, character=place - here.start)


def _arguments_differ_only_there(pair: Pair) -> bool:
    ours, theirs = pair.reader.request.prompt, pair.relative.request.prompt
    assert isinstance(ours, ChatMessages)
    assert isinstance(theirs, ChatMessages)
    return _arguments_differ(ours, theirs)


def _by_client(
    pair: Pair,
    later: Text,
    earlier: Text,
    place: int,
    change: MessagesChange,
    ours: ChatMessages,
    theirs: ChatMessages,
    here: FieldSpan | None,
) -> _Found | None:
    number = change.first
    old, new = theirs.messages[number], ours.messages[min(number, len(ours.messages) - 1)]
    where = here.path if here is not None else f"messages[{number}]"
    character = None if here is None else place - here.start
    if change.shape == "window":
        details: dict[str, int | str] = {
            "num_kept": number,
            "num_dropped": change.num_dropped,
        }
        return _Found("window-slides", f"messages[{number}]", details=details)
    if change.shape == "goes-back" or not pair.runs:
        return None
    if change.shape == "inserted":
        return _Found("messages-inserted", f"messages[{number}]")
    field_change = changed_field(old, new)
    how = "" if field_change is None else field_change[1]
    if field_change is not None and how in ("null", "reasoning", "arguments", "media"):
        kind = {
            "null": "null-content",
            "reasoning": "reasoning-dropped",
            "arguments": "arguments-reserialised",
            "media": "image-changed",
        }[how]
        source = "client" if kind == "reasoning-dropped" else None
        return _Found(kind, f"messages[{number}].{field_change[0]}", source, character=character)
    volatile = _volatile(pair, earlier, later, place)
    if volatile is not None and how == "text":
        if (
            here is not None
            and here.path == "system"
            and later.text.find("\n", here.start, place) < 0
        ):
            where = "system[0].text"
        return _Found(volatile.kind, where, period_s=volatile.period_s, character=character)
    if change.shape == "edited":
        return _Found("message-edited", where, character=character)
    if pair.is_weak:
        return None
    if change.shape == "replaced-end":
        return _Found("passing-instruction", where, character=character)
    if len(ours.messages) < len(theirs.messages) and number <= 2:
        return _Found("history-compacted", f"messages[{number}]")
    if _is_reordered(pair) and _covers_most(pair):
        return _Found("passages-reordered", where, character=character)
    return _Found("same-text-elsewhere", where, character=character)
