"""Two chats side by side as JSON: what a later one changed of an earlier one, and where first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from prefixaudit.why.rendering import REASONING_FIELDS, tool_name

Shape: TypeAlias = Literal[
    "equal", "continues", "goes-back", "window", "inserted", "edited", "replaced-end", "parted"
]
ToolsChange: TypeAlias = Literal["same", "order", "key-order", "changed"]
_NAME: Final = re.compile(r"[a-z][a-z_]{0,31}")
_MEDIA: Final = ("image_url", "image", "input_image", "audio", "input_audio", "video", "video_url")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesChange:
    """How the messages changed.

    equal         the same
    continues     the earlier ones, then more
    goes-back     the first of the earlier ones
    window        after `first` kept ones, `num_dropped` are gone, and the rest goes on
    inserted      after `first` kept ones new ones stand before the rest of the earlier ones
    edited        message `first` changed, and what followed it is still there
    replaced-end  the last of the earlier messages changed
    parted        from `first` on nothing lines up
    """

    shape: Shape
    first: int = 0
    num_dropped: int = 0


def compare_messages(
    earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]
) -> MessagesChange:
    """Say how the messages of a later chat come from those of an earlier one."""
    first = 0
    for old, new in zip(earlier, later, strict=False):
        if old != new:
            break
        first += 1
    old_rest, new_rest = earlier[first:], later[first:]
    if not old_rest:
        return MessagesChange(shape="continues" if new_rest else "equal", first=first)
    if not new_rest:
        return MessagesChange(shape="goes-back", first=first)
    for dropped in range(1, len(old_rest)):
        kept = old_rest[dropped:]
        if kept[0] == new_rest[0] and kept == new_rest[: len(kept)]:
            return MessagesChange(shape="window", first=first, num_dropped=dropped)
    for added in range(1, len(new_rest)):
        ahead = new_rest[added : added + len(old_rest)]
        if ahead and ahead[0] == old_rest[0] and ahead == old_rest[: len(ahead)]:
            return MessagesChange(shape="inserted", first=first)
    if len(old_rest) == 1:
        return MessagesChange(shape="replaced-end", first=first)
    follow = min(len(old_rest), len(new_rest)) - 1
    same = sum(old == new for old, new in zip(old_rest[1:], new_rest[1:], strict=False))
    if follow and 2 * same >= follow:
        return MessagesChange(shape="edited", first=first)
    return MessagesChange(shape="parted", first=first)


def compare_tools(
    earlier: Sequence[Mapping[str, Any]] | None, later: Sequence[Mapping[str, Any]] | None
) -> tuple[ToolsChange, int]:
    """Say how the tools changed, and the index of the first that differs.

    "order": the same ones; "key-order": equal as JSON, their keys in another order.
    """
    old, new = list(earlier or ()), list(later or ())
    texts_old, texts_new = [_text(tool) for tool in old], [_text(tool) for tool in new]
    if texts_old == texts_new:
        return "same", 0
    pairs = enumerate(zip(texts_old, texts_new, strict=False))
    first = next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))
    if old == new:
        return "key-order", first
    if sorted(map(canonical, old)) == sorted(map(canonical, new)):
        names = [tool_name(tool) for tool in new]
        first_name = next(
            (n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b), first
        )
        return ("order", first_name) if len(names) > 1 else ("key-order", first)
    return "changed", first


def changed_field(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first field that differs between two forms of a message, and how.

    How: "null" null in one, empty in the other; "reasoning" only one has it; "arguments" equal as
    JSON; "media" an image or the like; "role"; "text" anything else.
    """
    for name in REASONING_FIELDS:
        if old.get(name) != new.get(name):
            return name, "reasoning"
    if old.get("role") != new.get("role"):
        return "role", "role"
    before, after = old.get("content"), new.get("content")
    if before != after:
        if not before and not after:
            return "content", "null"
        if isinstance(before, list) and isinstance(after, list):
            return _changed_part(before, after)
        if isinstance(before, list) or isinstance(after, list):
            media = any(map(_is_media, [*_parts(before), *_parts(after)]))
            return "content", "media" if media else "form"
        return "content", "text"
    calls, now = _parts(old.get("tool_calls")), _parts(new.get("tool_calls"))
    for number, (call, other) in enumerate(zip(calls, now, strict=False)):
        if call == other:
            continue
        first, second = arguments_of(call), arguments_of(other)
        path = f"tool_calls[{number}].function.arguments"
        if first != second:
            return path, "arguments" if _value(first) == _value(second) else "text"
        if _id(call) != _id(other):
            return f"tool_calls[{number}].id", "id"
        return f"tool_calls[{number}]", "text"
    if len(calls) != len(now):
        return "tool_calls", "text"
    rest = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if not rest:
        return None
    # A key is the client's text: only what can be the name of a field is printed.
    return (rest[0] if _NAME.fullmatch(rest[0]) else "another field"), "text"


def canonical(value: Any) -> str:
    """Return JSON text that is equal for equal values, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _id(call: Any) -> Any:
    return call.get("id") if isinstance(call, Mapping) else None


def argument_texts(message: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a message's tool calls that were sent as text."""
    found = [arguments_of(call) for call in _parts(message.get("tool_calls"))]
    return [text for text in found if isinstance(text, str) and text]


def arguments_of(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    return function.get("arguments") if isinstance(function, Mapping) else None


def _value(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    return arguments


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _is_media(part: Any) -> bool:
    return isinstance(part, Mapping) and (
        part.get("type") in _MEDIA or any(name in part for name in _MEDIA)
    )


def _changed_part(before: list[Any], after: list[Any]) -> tuple[str, str]:
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            how = "media" if _is_media(old) or _is_media(new) else "text"
            return f"content[{number}]" + (".text" if how == "text" else ""), how
    number = min(len(before), len(after))
    longer = before if len(before) > len(after) else after
    return f"content[{number}]", "media" if _is_media(longer[number]) else "text"
