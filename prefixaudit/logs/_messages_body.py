"""Bodies of Anthropic's Messages API as the chats that OpenAI-shaped servers make of them.

Read from vLLM's entrypoints/anthropic/serving.py (0.11.2, 0.17.1, 0.33.0) and SGLang's file of the
same name:

* `system` blocks become one system message, joined without anything between them by vLLM, with a
  line feed by SGLang. vLLM drops those that start with `x-anthropic-billing-header` from 0.20.2 on.
  From 0.32.0 on its line is also dropped from the system text of every chat (chat_utils).
* a message's text blocks stay parts, a single one becomes its content; images become `image_url`
  parts; `thinking` becomes the message's `reasoning`, `tool_use` its tool calls with the input
  printed by Python's json; each `tool_result` of a user becomes a tool message in front of it.
* `cache_control` means nothing to an engine that caches by prefix.
* tools become functions with their `input_schema` as parameters.

Not mirrored: system messages among the messages are kept in place, as vLLM does for templates that
take them (it moves them to the front for others).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prefixaudit.core.request import ChatMessages, NotReplayable, PromptInput
from prefixaudit.logs._fields import type_name
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._options import ReadOptions

BILLING_HEADER: Final = "x-anthropic-billing-header"
_DROPPED_FROM: Final = (0, 20, 2)
_LINE_DROPPED_FROM: Final = (0, 32, 0)
_BLOCKS: Final = frozenset(
    {"text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "tool_reference"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRules:
    """What a server does to bodies in its own way; the default is of no known server.

    separator             between system blocks
    drops_billing_header  whether blocks of the Messages API that start with it are dropped
    drops_header_line     whether its line is dropped from the system text of any chat
    keeps_thinking        whether thinking blocks become a message's reasoning
    """

    separator: str = "\n"
    drops_billing_header: bool = False
    drops_header_line: bool = False
    keeps_thinking: bool = True


def messages_rules(options: ReadOptions) -> MessagesRules:
    """Return the rules of the engine that the options name; its newest known ones by default."""
    if options.engine == "vllm":
        version = _release(options.engine_version)
        return MessagesRules(
            separator="",
            drops_billing_header=version is None or version >= _DROPPED_FROM,
            drops_header_line=version is None or version >= _LINE_DROPPED_FROM,
        )
    if options.engine == "sglang":
        return MessagesRules(keeps_thinking=False)
    return MessagesRules()


def _release(version: str | None) -> tuple[int, ...] | None:
    if version is None:
        return None
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).release
    except InvalidVersion:
        return None


def is_messages_body(body: Mapping[str, Any]) -> bool:
    """Say whether a body with messages is one of the Messages API, by what only it has."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return False
    if "system" in body or "anthropic_version" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(t, dict) and "input_schema" in t for t in tools):
        return True
    return any(
        isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result", "thinking")
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for block in message["content"]
    )


def chat_of(body: Mapping[str, Any], rules: MessagesRules) -> PromptInput:
    """Return the chat that a server renders for a Messages body.

    Raises RecordError where a server would not have taken the body.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RecordError("no-prompt", "`messages` of the body is missing or empty")
    chat: list[Mapping[str, Any]] = []
    system = _system_text(body.get("system"), rules)
    if system:
        chat.append({"role": "system", "content": system})
    for message in messages:
        if not isinstance(message, dict):
            raise RecordError("bad-field", "`messages` of the body is not a list of objects")
        unknown = _add_message(chat, message, rules)
        if unknown:
            return NotReplayable(
                kind="messages-block",
                reason=f"a message holds {unknown} block, which no known server renders",
            )
    kwargs = body.get("chat_template_kwargs")
    effort = _inner(body, "output_config").get("effort")
    return ChatMessages(
        messages=chat,
        tools=_tools(body.get("tools")),
        chat_template_kwargs={
            **(kwargs if isinstance(kwargs, dict) else {}),
            **({"reasoning_effort": effort} if isinstance(effort, str) else {}),
        },
    )


def _system_text(system: Any, rules: MessagesRules) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    texts = _texts(system, "system")
    kept = [
        text
        for text in texts
        if not (rules.drops_billing_header and text.startswith(BILLING_HEADER))
    ]
    return rules.separator.join(kept)


def _texts(blocks: Any, name: str) -> list[str]:
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise RecordError("bad-field", f"`{name}` of the body is neither text nor a list of blocks")
    return [
        block["text"]
        for block in blocks
        if block.get("type") == "text" and isinstance(block.get("text"), str) and block["text"]
    ]


def _add_message(
    chat: list[Mapping[str, Any]], message: Mapping[str, Any], rules: MessagesRules
) -> str | None:
    """Append what a message becomes; return the type of a block that nobody knows, in quotes."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        chat.append({"role": role, "content": content})
        return None
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise RecordError(
            "bad-field", "`content` of a message is neither text nor a list of blocks"
        )
    if role == "system":
        text = _system_text(content, MessagesRules(
            separator="", drops_billing_header=rules.drops_billing_header
        ))  # fmt: skip
        if text:
            chat.append({"role": "system", "content": text})
        return None
    parts: list[Mapping[str, Any]] = []
    calls: list[Mapping[str, Any]] = []
    reasoning: list[str] = []
    for block in content:
        kind = str(block.get("type"))
        if kind not in _BLOCKS:
            return type_name(kind)
        if kind == "text" and block.get("text"):
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "image" and isinstance(block.get("source"), dict):
            parts.append(_image(block["source"]))
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            reasoning.append(block["thinking"])
        elif kind == "tool_use":
            calls.append(_tool_call(block))
        elif kind == "tool_result" and role == "user":
            chat.extend(_tool_messages(block))
        elif kind == "tool_result":
            text = str(block["content"]) if block.get("content") else ""
            parts.append({"type": "text", "text": f"Tool result: {text}"})
    made: dict[str, Any] = {"role": role}
    if reasoning and rules.keeps_thinking:
        # vLLM's renderer gives it to the template under both names.
        made["reasoning"] = made["reasoning_content"] = "".join(reasoning)
    if calls:
        made["tool_calls"] = calls
    if parts:
        is_one_text = len(parts) == 1 and parts[0]["type"] == "text"
        made["content"] = parts[0]["text"] if is_one_text else parts
    if len(made) > 1:
        chat.append(made)
    return None


def without_header_line(chat: ChatMessages) -> ChatMessages:
    """Return the chat without the billing header's line in its system texts (vLLM from 0.32.0)."""
    if not any(_starts_with_header(message) for message in chat.messages):
        return chat
    messages = [
        {**message, "content": _behind_header(message["content"])}
        if _starts_with_header(message)
        else message
        for message in chat.messages
    ]
    return replace(chat, messages=messages)


def _starts_with_header(message: Mapping[str, Any]) -> bool:
    if message.get("role") != "system":
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    return any(_text_of(part).startswith(BILLING_HEADER) for part in parts)


def _behind_header(content: Any) -> Any:
    if isinstance(content, str):
        return content.partition("\n")[2]
    parts: list[Any] = []
    for part in content:
        text = _text_of(part)
        if not text.startswith(BILLING_HEADER):
            parts.append(part)
        elif rest := text.partition("\n")[2]:
            parts.append(rest if isinstance(part, str) else {**part, "text": rest})
    return parts


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _tool_call(block: Mapping[str, Any]) -> Mapping[str, Any]:
    # The input is an object: its text is made anew by the server, whatever the model wrote.
    arguments = json.dumps(block.get("input") or {})
    return {
        "id": block.get("id") or "",
        "type": "function",
        "function": {"name": block.get("name") or "", "arguments": arguments},
    }


def _tool_messages(block: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = block.get("content")
    texts: list[str] = []
    images: list[Mapping[str, Any]] = []
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list):
        for item in content:
            if not isinstance(item, dict):
                continue
            if item.get("type") == "text" and isinstance(item.get("text"), str):
                texts.append(item["text"])
            elif item.get("type") == "image" and isinstance(item.get("source"), dict):
                images.append(_image(item["source"]))
    tool = {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id") or "",
        "content": "\n".join(texts),
    }
    return [tool, {"role": "user", "content": images}] if images else [tool]


def _image(source: Mapping[str, Any]) -> Mapping[str, Any]:
    if source.get("type") == "url":
        url = source.get("url", "")
    else:
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _tools(tools: Any) -> list[Mapping[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RecordError("bad-field", "`tools` of the body is not a list of objects")
    return [
        {
            "type": "function",
            "function": {
                "name": tool.get("name"),
                "description": tool.get("description"),
                "parameters": tool.get("input_schema"),
                **{
                    name: tool[name]
                    for name in ("strict", "defer_loading")
                    if tool.get(name) is not None
                },
            },
        }
        for tool in tools
    ]


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
