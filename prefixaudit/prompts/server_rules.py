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

from prefixaudit.prompts.media import MARK, modality_of
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
    """Messages as the template gets them, and what was among them.

    `has_unknown_parts`: content parts that are neither text nor media, passed on as they are.
    """

    messages: Sequence[Mapping[str, Any]]
    has_null_content: bool
    has_unknown_parts: bool


def prepare(
    messages: Sequence[Mapping[str, Any]],
    rules: ServerRules,
    facts: TemplateFacts,
    image_placeholder: str | None = None,
) -> PreparedMessages:
    """Apply a server's rules. Messages that need no change are passed on as they are.

    Media parts become `{"type": "image"}` for templates that walk through parts; else, as in vLLM,
    `image_placeholder` stands before the joined text. Without a placeholder a MARK stands for each.
    """
    joins = rules.content_parts == "join" or (
        rules.content_parts == "auto" and not facts.reads_parts
    )
    prepared: list[Mapping[str, Any]] = []
    has_null_content = has_unknown_parts = False
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
            parts = [_part(part, image_placeholder) for part in content]
            has_unknown_parts = has_unknown_parts or any(part is None for part in parts)
            if joins:
                joined = _joined(parts, rules.part_separator, image_placeholder)
                message = {**message, "content": joined}
            elif any(new is not old for new, old in zip(parts, content, strict=True)):
                kept = [
                    old if new is None else new for new, old in zip(parts, content, strict=True)
                ]
                message = {**message, "content": kept}
        if rules.null_content == "drop" and None in message.values():
            message = {key: value for key, value in message.items() if value is not None}
        if rules.tool_arguments == "object" and message.get("role") == "assistant":
            message = _with_parsed_calls(message)
        prepared.append(message)
    return PreparedMessages(
        messages=prepared,
        has_null_content=has_null_content,
        has_unknown_parts=has_unknown_parts,
    )


_IMAGE: Mapping[str, Any] = {"type": "image"}
_MARK: Mapping[str, Any] = {"type": "text", "text": MARK}


def _part(part: Any, image_placeholder: str | None) -> Any:
    """Return a content part as templates get it; None for what is neither text nor media."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    if isinstance(part.get("text"), str):
        return part
    # vLLM takes the text of a refusal, and of thinking that stands in a part.
    kind = part.get("type")
    if kind in ("refusal", "thinking") and isinstance(part.get(kind), str):
        return {"type": "text", "text": part[kind]}
    if modality_of(part) is not None:
        return _MARK if image_placeholder is None else _IMAGE
    return None


def _joined(parts: Sequence[Any], separator: str, image_placeholder: str | None) -> str:
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if part]
    joined = separator.join(text for text in texts if text is not None)
    if image_placeholder is None:
        return joined
    # vLLM, `_get_full_multimodal_text_prompt`: placeholders that the text doesn't have yet.
    num_images = sum(part is _IMAGE for part in parts) - joined.count(image_placeholder)
    return "\n".join([image_placeholder] * num_images + [joined])


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
