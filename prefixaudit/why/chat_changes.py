"""How two chats differ where their prompts part: by the client's doing or by the template's.

What the client changed is found by JSON. What the client didn't change is the template's doing,
and both texts say what. An answer that stands in the history in another form than it was generated
in is told apart from both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from prefixaudit.core.request import ChatMessages
from prefixaudit.core.why import Blame
from prefixaudit.why.found import (
    Found,
    covers_most,
    is_more_than_a_phrase,
    is_reordered,
    volatile_at,
)
from prefixaudit.why.rendering import (
    FieldSpan,
    Text,
    field_at,
    fields_of,
    path_of,
    tools_area,
)
from prefixaudit.why.runs import Pair
from prefixaudit.why.structure import (
    MessagesChange,
    argument_texts,
    changed_field,
    compare_tools,
)
from prefixaudit.why.volatile import find_volatile


def explain_chats(
    pair: Pair,
    later: Text,
    earlier: Text,
    place: int,
    change: MessagesChange,
    ours: ChatMessages,
    theirs: ChatMessages,
) -> Found | None:
    """Return what differs at character `place`, None where what follows is just new.

    `ours` is the later chat, `change` how its messages come from the earlier one's.
    """
    spans = fields_of(pair.reader.request, later.text)
    here = field_at(spans, place)
    tools, tool_index = compare_tools(theirs.tools, ours.tools)
    before_messages = here is None or here.message < change.first
    if tools != "same" and _in_tools(ours, later.text, place, spans, change):
        return _changed_tools(pair, tools, tool_index, theirs, ours, earlier, later, place)
    if before_messages and change.shape != "continues" and _arguments_differ(ours, theirs):
        return Found("template-choice", "chat_template, its arguments or documents")
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
) -> Found | None:
    where = f"tools[{index}]"
    details: dict[str, int | str] = {"first_tool_index": index}
    if how == "order":
        return Found("tool-order", where, details=details)
    if how == "key-order":
        return Found("schema-key-order", where, details=details)
    if not pair.runs:
        return None
    volatile = volatile_at(pair, earlier, later, place)
    if volatile is not None and len(ours.tools or ()) == len(theirs.tools or ()):
        return Found(volatile.kind, where, period_s=volatile.period_s, details=details)
    details["num_tools_before"] = len(theirs.tools or ())
    details["num_tools_after"] = len(ours.tools or ())
    return Found("tools-changed", where, details=details)


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
) -> Found | None:
    """Explain a difference that no field of the request explains."""
    where = "text of the chat template"
    if here is not None:
        where += f" at {here.path}"
    volatile = find_volatile(earlier.text, later.text, place)
    if volatile is not None and volatile.kind == "clock":
        return Found("template-clock", where, period_s=volatile.period_s, character=None)
    if _arguments_differ_only_there(pair) and pair.runs:
        return Found("template-choice", "chat_template, its arguments or documents")
    mine, other = tools_area(ours, later.text), tools_area(ours, earlier.text)
    if (
        mine is not None
        and other is not None
        and abs(mine[0] - other[0]) > 4
        and (min(mine[0], other[0]) <= place + 512 and place <= max(mine[1], other[1]))
    ):
        return Found("tools-moved", "tool definitions")
    if change.shape not in ("continues", "equal"):
        return None
    answer = ours.messages[change.first] if change.first < len(ours.messages) else {}
    if place >= earlier.prompt_end:
        return _in_answer(pair, later, earlier, place, change, answer)
    rest = earlier.text[place : earlier.prompt_end]
    if _has_reasoning(ours, change.first) or _thinks(earlier.text[place:], answer):
        return Found("reasoning-dropped", _message_place(pair, change.first))
    if len(rest) <= 256 and _is_tail(earlier, place, change, pair):
        tail = pair.relative.num_prompt_tokens - pair.num_shared
        details: dict[str, int | str] = {"num_tail_tokens": tail}
        return Found("generation-prompt", "end of the generation prompt", details=details)
    anchor = rest[:64]
    if len(anchor) >= 24 and later.text.find(anchor, place) > 0:
        return Found("text-moved", where)
    return Found("history-rewritten", where)


def _message_place(pair: Pair, number: int) -> str:
    return f"{path_of(pair.reader.request, number)} as the chat template prints it"


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
) -> Found | None:
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
                    # What the client sent can be what the model wrote, and be printed otherwise.
                    kept = any(
                        earlier.text.startswith(text, span.start) for text in argument_texts(answer)
                    )
                    kind = "arguments-reprinted" if kept else "arguments-reserialised"
                    return Found(kind, span.path, character=place - span.start)
            break
    if _thinks(earlier.text[place:], answer):
        return Found("reasoning-dropped", _message_place(pair, change.first))
    if not pair.runs:
        return None
    here = field_at(spans, place)
    if here is None:
        return Found("history-rewritten", _message_place(pair, change.first))
    volatile = volatile_at(pair, earlier, later, place)
    if volatile is not None and volatile.kind == "whitespace":
        return Found("whitespace", here.path, character=place - here.start)
    return Found("message-edited", here.path, character=place - here.start)


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
) -> Found | None:
    number = change.first
    old, new = theirs.messages[number], ours.messages[min(number, len(ours.messages) - 1)]
    at = path_of(pair.reader.request, number)
    where = here.path if here is not None else at
    character = None if here is None else place - here.start
    if change.shape == "window":
        details: dict[str, int | str] = {
            "num_kept": number,
            "num_dropped": change.num_dropped,
        }
        return Found("window-slides", at, details=details)
    if change.shape == "goes-back" or not pair.runs:
        return None
    if change.shape == "inserted":
        return Found("messages-inserted", at)
    field_change = changed_field(old, new)
    how = "" if field_change is None else field_change[1]
    if field_change is not None and how in ("null", "reasoning", "arguments", "media"):
        kind = {
            "null": "null-content",
            "reasoning": "reasoning-dropped",
            "arguments": "arguments-reserialised",
            "media": "image-changed",
        }[how]
        source: Blame | None = "client" if kind == "reasoning-dropped" else None
        return Found(
            kind, path_of(pair.reader.request, number, field_change[0]), source, character=character
        )
    volatile = volatile_at(pair, earlier, later, place)
    if volatile is not None and how == "text":
        if (
            here is not None
            and here.path == "system"
            and later.text.find("\n", here.start, place) < 0
        ):
            where = "system[0].text"
        return Found(volatile.kind, where, period_s=volatile.period_s, character=character)
    if change.shape == "edited":
        return Found("message-edited", where, character=character)
    if pair.is_weak or not is_more_than_a_phrase(pair):
        return None
    if change.shape == "replaced-end" and len(ours.messages) > number + 1:
        return Found("passing-instruction", where, character=character)
    if len(ours.messages) < len(theirs.messages) and number <= 2:
        return Found("history-compacted", at)
    if is_reordered(pair) and covers_most(pair):
        return Found("passages-reordered", where, character=character)
    return Found("same-text-elsewhere", where, character=character)
