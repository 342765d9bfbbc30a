"""Turns of AIPerf's datasets as the chat requests that AIPerf sends for them.

A turn of one text is a message of text; several texts, and images, audio or video beside them, are
parts of one message. AIPerf puts the server's own answers between the turns of a conversation,
unless the dataset has them: then what follows the first turn isn't in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.core.request import ChatMessages, NotReplayable, PromptInput
from prefixaudit.logs._json_lines import RecordError

LIVE_HISTORY: Final = NotReplayable(
    kind="server-history",
    reason="the prompt holds the server's answers to earlier turns, which the dataset doesn't have",
)
_MEDIA: Final = (("image", "images"), ("audio", "audios"), ("video", "videos"))
_PART_TYPES: Final = {"image": "image_url", "audio": "input_audio", "video": "video_url"}


def is_turn(record: Mapping[str, Any]) -> bool:
    """Say whether a record is a turn: text or media, by AIPerf's names."""
    return (
        isinstance(record.get("text"), str)
        or isinstance(record.get("texts"), list)
        or isinstance(record.get("image"), str)
        or isinstance(record.get("images"), list)
    )


def message_of(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message that AIPerf makes of a turn.

    Raises RecordError where the turn has no text and no media, or where an item of them holds
    several contents, which are a batch of requests.
    """
    texts = [turn["text"]] if isinstance(turn.get("text"), str) else _contents(turn, "texts")
    parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    for one, several in _MEDIA:
        kind = _PART_TYPES[one]
        items = [turn[one]] if isinstance(turn.get(one), str) else _contents(turn, several)
        parts += [{"type": kind, kind: {"url": item}} for item in items]
    if not parts:
        raise RecordError("no-prompt", "the turn has neither text nor media")
    role = turn.get("role")
    role = role if isinstance(role, str) and role else "user"
    if len(parts) == 1 and texts:
        return {"role": role, "content": texts[0]}
    return {"role": role, "content": parts}


def chat_of(messages: Any, tools: Any = None) -> PromptInput:
    """Return the chat of messages that are sent as they are; RecordError where they are none."""
    if not isinstance(messages, list) or not messages:
        raise RecordError("no-prompt", "`messages` is missing or empty")
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        raise RecordError("bad-field", "`messages` is not a list of objects with a `role`")
    if tools is not None and (
        not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools)
    ):
        raise RecordError("bad-field", "`tools` is not a list of objects")
    return ChatMessages(messages=messages, tools=tools)


def _contents(turn: Mapping[str, Any], name: str) -> list[str]:
    items = turn.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        raise RecordError("bad-field", f"`{name}` is not a list")
    found: list[str] = []
    for item in items:
        contents = item.get("contents") if isinstance(item, dict) else [item]
        if not isinstance(contents, list) or not all(isinstance(text, str) for text in contents):
            raise RecordError("bad-field", f"`{name}` holds something else than text")
        if len(contents) > 1:
            raise RecordError("batch", f"`{name}` holds a batch, which AIPerf sends in its own way")
        found += contents
    return found
