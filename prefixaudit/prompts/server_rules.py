"""What a server does to a chat's messages before it hands them to the template.

Nothing of this is left to the installed transformers: 5.24 drops keys whose value is null, older
releases and the renderer itself pass them on, and servers have rules of their own. The default
passes everything on as the client sent it, but for content parts: a template that doesn't walk
through parts gets their text, joined, since all servers do that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prefixaudit.prompts.templates import Refusal, TemplateFacts

NullContent = Literal["keep", "drop", "empty"]
ToolArguments = Literal["as-sent", "object"]
ContentParts = Literal["auto", "as-sent", "join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRules:
    """How a server prepares messages.

    null_content    keep: the template sees null (transformers up to 5.23; naive templates print
                    the word None). drop: keys with null are left out of messages (transformers
                    5.24). empty: null content is an empty text (vLLM's and SGLang's servers)
    tool_arguments  as-sent, or object: the text that the model wrote is parsed (vLLM, SGLang)
    content_parts   auto: parts for templates that walk through them, else their joined text
    part_separator  what stands between joined parts: a line feed (vLLM), a space (SGLang)
    """

    null_content: NullContent = "keep"
    tool_arguments: ToolArguments = "as-sent"
    content_parts: ContentParts = "auto"
    part_separator: str = "\n"


AS_SENT = ServerRules()
# Tool calls: vLLM's `_postprocess_messages` and SGLang's `normalize_assistant_tool_call_arguments`
# parse the arguments of assistant messages. Null content as empty text isn't verified by version.
# Known to be missing: SGLang turns a last assistant message that isn't continued into a user's.
VLLM = ServerRules(null_content="empty", tool_arguments="object")
SGLANG = ServerRules(null_content="empty", tool_arguments="object", part_separator=" ")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMessages:
    """Messages as the template gets them; whether null content or media was among them."""

    messages: Sequence[Mapping[str, Any]]
    has_null_content: bool
    has_media: bool


def prepare(
    messages: Sequence[Mapping[str, Any]], rules: ServerRules, facts: TemplateFacts
) -> PreparedMessages:
    """Apply a server's rules. Messages that need no change are passed on as they are."""
    joins = rules.content_parts == "join" or (
        rules.content_parts == "auto" and not facts.reads_parts
    )
    prepared: list[Mapping[str, Any]] = []
    has_null_content = has_media = False
    for message in messages:
        if not isinstance(message, Mapping):
            raise Refusal("template-error", "a message of this chat isn't an object")
        if type(message) is not dict:
            message = dict(message)  # the renderer takes nothing else
        content = message.get("content", "")
        if content is None:
            has_null_content = True
            if rules.null_content == "empty":
                message = {**message, "content": ""}
        elif isinstance(content, list):
            has_media = has_media or any(not _is_text(part) for part in content)
            if joins:
                texts = [_text_of(part) for part in content if _is_text(part)]
                message = {**message, "content": rules.part_separator.join(texts)}
        if rules.null_content == "drop" and None in message.values():
            message = {key: value for key, value in message.items() if value is not None}
        if rules.tool_arguments == "object" and message.get("role") == "assistant":
            message = _with_parsed_calls(message)
        prepared.append(message)
    return PreparedMessages(
        messages=prepared, has_null_content=has_null_content, has_media=has_media
    )


def _is_text(part: Any) -> bool:
    if isinstance(part, str):
        return True
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _text_of(part: Any) -> str:
    text: str = part if isinstance(part, str) else part["text"]
    return text


def _with_parsed_calls(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    if not calls:  # an empty list would lead templates off the normal path
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return {**message, "tool_calls": [_parsed_call(call) for call in calls]}


def _parsed_call(call: Any) -> Any:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            # json.loads, unlike orjson, keeps whole numbers of any size, as the servers do.
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise Refusal(
                "invalid-tool-arguments",
                "the arguments of a tool call aren't valid JSON: the server refuses them",
            ) from None
    elif not arguments:
        arguments = {}
    return {**call, "function": {**call["function"], "arguments": arguments}}
