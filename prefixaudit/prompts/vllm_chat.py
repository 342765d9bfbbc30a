"""What vLLM's server makes of a chat (read in the releases 0.6.0 to 0.33.0).

Sources, by release: entrypoints/chat_utils.py up to 0.31, renderers/chat_utils(.py, /) from 0.32,
for messages; entrypoints/openai/protocol.py up to 0.15, then entrypoints/openai/chat_completion and
engine/protocol.py, for bodies; renderers/hf.py from 0.16 for roles. Versions are the first release
that was read with the change.

Known to be missing: models with renderers of their own (gpt-oss, DeepSeek V3.2 and later, Mistral's
tokenizer, Kimi K3, Cohere, Inkling), `--interleave-mm-strings`, and the 0.6 releases' exceptions
for single model types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from prefixaudit.prompts.content_format import Guess
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.versions import Version, reached

_CALL_KEYS: Final = ("id", "function", "type")
_FUNCTION_KEYS: Final = ("arguments", "name")
_OPTIONAL_TOOL_KEYS: Final = ("strict", "defer_loading")


def guess_for(version: Version | None) -> Guess | None:
    """Return the release's guess at templates with parts; None before 0.6.5: all get text."""
    if reached(version, since=(0, 33, 0)):
        return "vllm-0.33"
    if reached(version, since=(0, 30, 0)):
        return "vllm-0.30"
    if reached(version, since=(0, 22, 0)):
        return "vllm-0.22"
    return "vllm-0.6.5" if reached(version, since=(0, 6, 5)) else None


def with_known_keys(message: Mapping[str, Any], version: Version | None) -> dict[str, Any]:
    """Return the message with the keys that `_parse_chat_message_content` writes, and no others.

    Content is taken over as it is, where there is some.
    """
    role = message.get("role")
    kept: dict[str, Any] = {"role": role}
    if "content" in message:
        kept["content"] = message["content"]
    if role == "assistant":
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            kept["tool_calls"] = [_call(call) for call in calls]
        reasoning = _reasoning(message, version)
        if reasoning is not None:
            kept["reasoning"] = kept["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in message:
        kept["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        kept["name"] = message["name"]
    if reached(version, since=(0, 20, 0)) and isinstance(message.get("task"), str):
        kept["task"] = message["task"]
    if role == "developer" and reached(version, since=(0, 13, 0)):
        kept["tools"] = message.get("tools")
    return kept


def _reasoning(message: Mapping[str, Any], version: Version | None) -> Any:
    """Return what the model thought, as far as the release hands it on.

    From 0.11.1 `reasoning`; the body's types keep no `reasoning_content` before 0.22 renames it.
    Null content makes a message of OpenAI's own type, which has no field for it.
    """
    if not reached(version, since=(0, 11, 1)) or message.get("content", "") is None:
        return None
    reasoning = message.get("reasoning")
    if reasoning is None and reached(version, since=(0, 22, 0)):
        reasoning = message.get("reasoning_content")
    return reasoning


def _call(call: Any) -> Any:
    """Return a tool call with its keys in the order of OpenAI's types, which pydantic writes."""
    if not isinstance(call, Mapping):
        return call
    kept = {key: call[key] for key in _CALL_KEYS if key in call}
    function = call.get("function")
    if isinstance(function, Mapping):
        kept["function"] = {key: function[key] for key in _FUNCTION_KEYS if key in function}
    return kept


def keeps_part(part: Any, version: Version | None) -> bool:
    """Say whether templates with parts get one: empty texts are left out before 0.8.4."""
    is_empty = isinstance(part, Mapping) and part.get("text") == ""
    return not is_empty or reached(version, since=(0, 8, 4))


def text_part(part: Any) -> Any:
    """Return a part as `_parse_chat_message_content_part` wraps it for templates with parts.

    From 0.26 keys that no type of the API has go along; they aren't told apart here, and are left
    out: none is known to reach a template's text.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def with_tool_text(message: dict[str, Any], version: Version | None) -> dict[str, Any]:
    """Join the parts of a tool's result to one text, from 0.20, unless one isn't text."""
    content = message.get("content")
    if (
        message.get("role") != "tool"
        or not isinstance(content, list)
        or not reached(version, since=(0, 20, 0))
        or any(isinstance(part, Mapping) and part.get("type") != "text" for part in content)
    ):
        return message
    texts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
    return {**message, "content": "\n".join(texts)}


def drops_no_calls(version: Version | None) -> bool:
    """Say whether an empty list of tool calls is dropped: from 0.13."""
    return reached(version, since=(0, 13, 0))


def parsed_arguments(arguments: Any, version: Version | None) -> Any:
    """Return a call's arguments as `_postprocess_messages` hands them on.

    Before 0.11 there have to be some; from 0.23 null is an empty object; from 0.29 all that isn't
    an object is an empty one. Raises Refusal for text that isn't JSON before that.
    """
    if not arguments and reached(version, since=(0, 11, 0)):
        return {}
    if not isinstance(arguments, str):
        is_kept = isinstance(arguments, Mapping) or not reached(version, since=(0, 29, 0))
        return arguments if is_kept else {}
    try:
        # json.loads, unlike orjson, keeps whole numbers of any size, as the server does.
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        if reached(version, since=(0, 29, 0)):
            return {}
        raise Refusal(
            "invalid-tool-arguments",
            "the arguments of a tool call aren't valid JSON: the server refuses them",
        ) from None
    if reached(version, since=(0, 29, 0)) and not isinstance(parsed, dict):
        return {}
    return {} if parsed is None and reached(version, since=(0, 23, 0)) else parsed


def without_developers(
    messages: Sequence[Mapping[str, Any]], version: Version | None, names_developer: bool
) -> list[Mapping[str, Any]]:
    """Make system messages of developer's for templates that don't name the role, from 0.23.

    All system messages are then joined into one at the front (renderers/hf.py,
    `_consolidate_system_messages`), unless there is one only and it's there already.
    """
    kept = list(messages)
    has_developer = any(message.get("role") == "developer" for message in kept)
    if names_developer or not has_developer or not reached(version, since=(0, 23, 0)):
        return kept
    kept = [_as_system(message) for message in kept]
    systems = [place for place, message in enumerate(kept) if message.get("role") == "system"]
    if systems == [0]:
        return kept
    texts = [text for place in systems if (text := _text_of(kept[place].get("content")))]
    others = [message for message in kept if message.get("role") != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def _as_system(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message.get("role") != "developer":
        return message
    kept = {key: value for key, value in message.items() if key != "tools"}
    return {**kept, "role": "system"}


def _text_of(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    return "\n".join(
        part if isinstance(part, str) else part["text"]
        for part in content
        if isinstance(part, str) or (isinstance(part, Mapping) and "text" in part)
    )


def refuses_no_tools(version: Version | None) -> bool:
    """Say whether an empty list of tools is refused: from 0.20."""
    return reached(version, since=(0, 20, 0))


def tools_for_template(
    tools: Sequence[Mapping[str, Any]] | None, version: Version | None
) -> list[Mapping[str, Any]] | None:
    """Return tools as pydantic writes them: known keys first, in order, absent ones as null.

    `ChatCompletionToolsParam` and `FunctionDefinition`: unknown keys follow up to 0.26 and are
    dropped from 0.27. `tool_choice: "none"` keeps the tools, unless the server was started with
    `--exclude-tools-when-tool-choice-none` (0.10.1).
    """
    if tools is None:
        return None
    drops = reached(version, since=(0, 27, 0))
    return [_tool(tool, drops=drops, version=version) for tool in tools]


def _tool(tool: Mapping[str, Any], *, drops: bool, version: Version | None) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    known = ("name", "description", "parameters")
    written = {key: function.get(key) for key in known}
    outer: dict[str, Any] = {"type": tool.get("type", "function"), "function": written}
    if reached(version, since=(0, 21, 0)):
        # Optional keys stand after the known ones, and are left out where they are null.
        loading = tool.get("defer_loading")
        inner = function.get("defer_loading")
        if reached(version, since=(0, 24, 0)) and function.get("strict") is not None:
            written["strict"] = function["strict"]
        if (inner if inner is not None else loading) is not None:
            written["defer_loading"] = inner if inner is not None else loading
        if loading is not None:
            outer["defer_loading"] = loading
    if not drops:
        typed = ("defer_loading",) if reached(version, since=(0, 21, 0)) else ()
        inner_typed = _OPTIONAL_TOOL_KEYS if reached(version, since=(0, 24, 0)) else typed
        written |= {key: function[key] for key in function if key not in (*known, *inner_typed)}
        outer |= {key: tool[key] for key in tool if key not in ("type", "function", *typed)}
    return outer


def variables(
    given: Mapping[str, Any], reasoning_effort: Any, version: Version | None
) -> Mapping[str, Any]:
    """Return the template's variables: the body's `reasoning_effort` is one from 0.14.

    From 0.22 it switches `enable_thinking` too, unless the client did.
    """
    if reasoning_effort is None:
        return given
    if not reached(version, since=(0, 14, 0)):
        return {key: value for key, value in given.items() if key != "reasoning_effort"}
    if reached(version, since=(0, 22, 0)) and "enable_thinking" not in given:
        return {**given, "enable_thinking": reasoning_effort != "none"}
    return given
