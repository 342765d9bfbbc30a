"""Messages as OpenTelemetry's instrumentations write them, in OpenAI's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.logs._chats import decoded

_INDEXED: Final = re.compile(r"\.(\d{1,4})\.(?:message\.)?([a-z_]+)$", re.ASCII)

Message = Mapping[str, Any]


def messages_of(stored: Any) -> list[Message]:
    """Return messages of {role, parts}, or of {role, content}; an empty list where it's neither."""
    if isinstance(stored, dict):
        stored = stored.get("messages", [stored])
    if not isinstance(stored, list):
        return []
    messages: list[Message] = []
    for item in stored:
        if not isinstance(item, dict) or not isinstance(item.get("role"), str):
            return []
        if isinstance(item.get("parts"), list):
            messages += _from_parts(item["role"], item["parts"])
        else:
            messages.append(item)
    return messages


def system_of(stored: Any) -> list[Message]:
    """Return the system message that instructions stand for: text, or a list of text parts."""
    if isinstance(stored, str) and stored:
        return [{"role": "system", "content": stored}]
    if isinstance(stored, dict):
        stored = [stored]
    if isinstance(stored, list) and stored:
        return _from_parts("system", stored)
    return []


def indexed_messages(attributes: Mapping[str, Any], prefix: str) -> list[Message]:
    """Return messages out of attributes like `gen_ai.prompt.0.role`, in their order."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            match = _INDEXED.fullmatch(name, len(prefix))
            if match:
                found.setdefault(int(match.group(1)), {})[match.group(2)] = value
    return [
        {**message, "content": decoded_parts(message.get("content"))}
        for _, message in sorted(found.items())
        if isinstance(message.get("role"), str)
    ]


def decoded_parts(content: Any) -> Any:
    """Return content with its parts decoded where they are text that holds them."""
    value = decoded(content)
    is_parts = isinstance(value, list) and all(
        isinstance(part, dict) and "type" in part for part in value
    )
    return value if is_parts and value else content


def _from_parts(role: str, parts: list[Any]) -> list[Message]:
    """Return the message that parts make; answers of tools are messages of their own before it."""
    content: list[Message] = []
    calls: list[Message] = []
    reasoning: list[str] = []
    messages: list[Message] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        text = part.get("content", part.get("text"))
        if kind == "text":
            content.append({"type": "text", "text": text if isinstance(text, str) else ""})
        elif kind in ("reasoning", "thinking"):
            reasoning.append(text if isinstance(text, str) else "")
        elif kind == "tool_call":
            calls.append(_call(part))
        elif kind == "tool_call_response":
            answer = part.get("response", part.get("result"))
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": part.get("id"),
                    "content": answer if isinstance(answer, str) else _dumped(answer),
                }
            )
        else:
            content.append(_media(part))
    made: dict[str, Any] = {"role": role}
    if reasoning:
        made["reasoning_content"] = "".join(reasoning)
    if len(content) == 1 and content[0]["type"] == "text":
        made["content"] = content[0]["text"]
    elif content:
        made["content"] = content
    if calls:
        made.setdefault("content", None)
        made["tool_calls"] = calls
    return [*messages, made] if len(made) > 1 else messages


def _call(part: Mapping[str, Any]) -> Message:
    arguments = part.get("arguments")
    return {
        "id": part.get("id"),
        "type": "function",
        "function": {
            "name": part.get("name"),
            "arguments": arguments if isinstance(arguments, str) else _dumped(arguments or {}),
        },
    }


def _media(part: Mapping[str, Any]) -> Message:
    kind = str(part.get("modality", "image"))
    url = part.get("uri")
    if url is None:
        url = f"data:{part.get('mime_type', kind)};base64,{part.get('content', '')}"
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
