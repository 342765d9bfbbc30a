"""What SGLang's server makes of a chat (read in the releases 0.4.6 to 0.5.23).

Sources: srt/openai_api/adapter.py up to 0.4.7, srt/entrypoints/openai/serving_chat.py and
protocol.py from 0.4.8, srt(/parser)/jinja_template_utils.py for parts. Versions are the first
release that was read with the change.

Known to be missing: conversation templates (`--chat-template` by name), encoders of single models
(DeepSeek V3.2 and later, Kimi K3, GLM, MiniMax M3), and results of tools that 0.5.20 puts in the
order of their calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prefixaudit.prompts.content_format import Guess
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.versions import Version, reached

_EFFORT_WITHOUT_ANY: Final = "medium"


def guess_for(version: Version | None) -> Guess | None:
    """Return the release's guess at templates with parts; None before 0.4.7: all get text."""
    if reached(version, since=(0, 5, 3)):
        return "sglang-0.5.3"
    if reached(version, since=(0, 5, 1)):
        return "sglang-0.5.1"
    return "sglang-0.4.7" if reached(version, since=(0, 4, 7)) else None


def with_known_keys(message: Mapping[str, Any], version: Version | None) -> dict[str, Any]:
    """Return the message with the fields of its type (protocol.py), without those that are null.

    Content is taken over as it is, where there is some.
    """
    role = message.get("role")
    kept: dict[str, Any] = {"role": role}
    if "content" in message:
        kept["content"] = message["content"]
    if role == "user" or not reached(version, since=(0, 4, 7)):
        return kept
    keys = ["tool_call_id", "name", "reasoning_content"]
    if reached(version, since=(0, 5, 7)):
        keys.append("tools")
    kept |= {key: message[key] for key in keys if message.get(key) is not None}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        kept["tool_calls"] = [_call(call) for call in calls]
    return kept


def _call(call: Any) -> Any:
    """Return a tool call as `ToolCall.model_dump()` writes it: absent fields are null."""
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping):
        function = {"name": function.get("name"), "arguments": function.get("arguments")}
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call.get("type", "function"),
        "function": function,
    }


def text_part(part: Any) -> Any:
    """Return a part of text with the two keys of its type."""
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def with_tool_text(message: dict[str, Any], version: Version | None) -> dict[str, Any]:
    """Join the parts of a tool's result with spaces, from 0.5.11, unless one isn't text."""
    content = message.get("content")
    if (
        message.get("role") != "tool"
        or not isinstance(content, list)
        or not reached(version, since=(0, 5, 11))
        or not all(_is_text(part) for part in content)
    ):
        return message
    texts = [part if isinstance(part, str) else part.get("text", "") for part in content]
    return {**message, "content": " ".join(texts)}


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")


def parsed_arguments(arguments: Any, version: Version | None) -> Any:
    """Return a call's arguments, parsed from 0.5.2 on where they are text.

    Raises Refusal for text that isn't JSON, and from 0.5.13 for what isn't an object.
    """
    if not isinstance(arguments, str) or not reached(version, since=(0, 5, 2)):
        return arguments
    import orjson

    try:
        parsed = orjson.loads(arguments)
    except (orjson.JSONDecodeError, RecursionError):
        raise _invalid("aren't valid JSON") from None
    if not isinstance(parsed, dict) and reached(version, since=(0, 5, 13)):
        raise _invalid("aren't an object")
    return parsed


def _invalid(what: str) -> Refusal:
    return Refusal(
        "invalid-tool-arguments",
        f"the arguments of a tool call {what}: the server refuses them",
    )


def tools_for_template(
    tools: Sequence[Mapping[str, Any]] | None, tool_choice: Any, version: Version | None
) -> tuple[list[Mapping[str, Any]] | None, list[Mapping[str, Any]] | None]:
    """Return tools as templates get them, and what is tried where the template fails on those.

    Before 0.5.9 functions without what is around them, then with a wrapper; from 0.5.9 the other
    way round. `tool_choice: "none"` leaves them out; a tool chosen by name leaves out the others.
    """
    if not tools or tool_choice == "none":
        return None, None
    chosen = None
    if isinstance(tool_choice, Mapping):
        function = tool_choice.get("function")
        chosen = function.get("name") if isinstance(function, Mapping) else None
    kept = [tool for tool in tools if chosen is None or _name(tool) == chosen]
    if not kept:
        return None, None
    functions = [_function(tool, version) for tool in kept]
    if not reached(version, since=(0, 5, 9)):
        return functions, [{"function": function} for function in functions]
    wrapped: list[Mapping[str, Any]] = []
    for tool, function in zip(kept, functions, strict=True):
        whole: dict[str, Any] = {"type": tool.get("type", "function"), "function": function}
        if reached(version, since=(0, 5, 11)):
            whole["defer_loading"] = tool.get("defer_loading")
        wrapped.append(whole)
    return wrapped, functions


def _name(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else None


def _function(tool: Mapping[str, Any], version: Version | None) -> Mapping[str, Any]:
    """Return a function as `Function.model_dump()` writes it; 0.5.23 keeps the client's order."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    written = {key: function.get(key) for key in ("description", "name", "parameters")}
    keeps_order = reached(version, since=(0, 5, 23))
    strict = function.get("strict")
    if not keeps_order:
        written["strict"] = bool(strict)
    elif strict is not None:
        written["strict"] = strict
    if reached(version, since=(0, 5, 11)):
        loading = function.get("defer_loading")
        loading = tool.get("defer_loading") if loading is None else loading
        if loading is not None:
            written["defer_loading"] = loading
    if not keeps_order:
        return written
    order = [*(key for key in function if key in written), *written]
    return {key: written[key] for key in dict.fromkeys(order)}


def last_turn(
    messages: Sequence[Mapping[str, Any]], *, continues: bool, version: Version | None
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the messages to render, and the text that is tokenized by itself behind them.

    `_handle_last_assistant_message`: a final assistant message that is to be continued is taken
    off; from 0.5.8 one that isn't becomes the user's.
    """
    if not messages or messages[-1].get("role") != "assistant":
        return messages, ""
    content = messages[-1].get("content")
    if not isinstance(content, str):
        return messages, ""
    if continues:
        return messages[:-1], content
    if reached(version, since=(0, 5, 8)):
        return [*messages[:-1], {"role": "user", "content": content}], ""
    return messages, ""


def variables(
    given: Mapping[str, Any], reasoning_effort: Any, version: Version | None
) -> Mapping[str, Any]:
    """Return the template's variables, with what `reasoning_effort` of the body sets.

    It is one from 0.5.1; up to 0.5.9 it is "medium" where the body has none. From 0.5.10 "none"
    switches thinking off, and from 0.5.16 others switch it on, unless the client did.
    """
    if not reached(version, since=(0, 5, 1)):
        if reasoning_effort is None:
            return given
        return {key: value for key, value in given.items() if key != "reasoning_effort"}
    if not reached(version, since=(0, 5, 10)):
        return {"reasoning_effort": _EFFORT_WITHOUT_ANY, **given}
    thinks = reasoning_effort != "none"
    if reasoning_effort is None or (thinks and not reached(version, since=(0, 5, 16))):
        return given
    return {"thinking": thinks, "enable_thinking": thinks, **given}
