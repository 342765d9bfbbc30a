"""Bodies of OpenAI's Responses API as the chats that vLLM makes of them.

Read from vLLM's entrypoints/openai/responses/utils.py and serving.py (0.33.0). `instructions`
become a system message; items become messages: function calls and reasoning join the assistant
message in front of them, outputs of functions become tool messages. With `previous_response_id` the
messages of that response without its system message come first, then the text of its answer
(vLLM leaves its reasoning and its calls out), so a prompt can be made of a record only where the
response that it continues is in the log too.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefixaudit.core.request import ChatMessages, NotReplayable, PromptInput
from prefixaudit.logs._fields import type_name
from prefixaudit.logs._json_lines import RecordError

Messages = Sequence[Mapping[str, Any]]

# Messages are shared between the responses of a chain, so one costs little more than its items.
_MAX_STORED: Final = 2**18
_BODY_NAMES: Final = (
    "instructions", "previous_response_id", "conversation", "max_output_tokens", "reasoning",
    "text", "store", "tools", "truncation", "include", "prompt_cache_key", "background",
)  # fmt: skip
_CHAT_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """What a server keeps of a response: its prompt's messages and the answer's texts."""

    messages: Messages
    answer: Messages


class StoredResponses:
    """The responses of a stream of logs by id; of very many, the oldest are forgotten."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, StoredResponse] = OrderedDict()

    def add(self, response_id: str, stored: StoredResponse) -> None:
        """Keep a response."""
        self._by_id[response_id] = stored
        if len(self._by_id) > _MAX_STORED:
            self._by_id.popitem(last=False)

    def find(self, response_id: str) -> StoredResponse | None:
        """Return the response of an id."""
        return self._by_id.get(response_id)


def is_responses_body(body: Any) -> bool:
    """Say whether an object is a Responses body: `input` alone could be one for embeddings."""
    if not isinstance(body, dict) or "messages" in body or "output" in body:
        return False
    items = body.get("input")
    if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
        return any("role" in item or "type" in item for item in items)
    return isinstance(items, str | list) and any(name in body for name in _BODY_NAMES)


def chat_of(body: Mapping[str, Any], stored: StoredResponses) -> PromptInput:
    """Return the chat that a server renders for a body, with what it knows from before.

    Raises RecordError where a server would not have taken the body.
    """
    problem = _problem(body)
    if problem is not None:
        return problem
    messages: list[Mapping[str, Any]] = []
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    previous_id = body.get("previous_response_id")
    if isinstance(previous_id, str):
        previous = stored.find(previous_id)
        if previous is None:
            return NotReplayable(
                kind="server-history",
                reason="the prompt continues a response that isn't in the log: its beginning is "
                "on the server only",
            )
        messages += [message for message in previous.messages if message.get("role") != "system"]
        messages += previous.answer
    items = body.get("input")
    if isinstance(items, str):
        messages.append({"role": "user", "content": items})
    else:
        refusal = _add_items(messages, items if isinstance(items, list) else [])
        if refusal is not None:
            return refusal
    if not messages:
        raise RecordError("no-prompt", "`input` of the body is missing or empty")
    kwargs = body.get("chat_template_kwargs")
    kwargs = dict(kwargs) if isinstance(kwargs, dict) else {}
    effort = _inner(body, "reasoning").get("effort")
    if isinstance(effort, str):
        kwargs["reasoning_effort"] = effort
        kwargs.setdefault("enable_thinking", effort != "none")
    continues = _continues(items)
    return ChatMessages(
        messages=messages,
        tools=_tools(body.get("tools")),
        chat_template_kwargs=kwargs,
        add_generation_prompt=not continues,
        continue_final_message=continues,
    )


def stored_of(prompt: PromptInput, answer: Sequence[Mapping[str, Any]]) -> StoredResponse | None:
    """Return what the server keeps of a request and its answer; None where it isn't known."""
    if not isinstance(prompt, ChatMessages):
        return None
    texts = [
        {"role": "assistant", "content": content["text"]}
        for item in outputs_of(answer)
        if item.get("type") == "message" and isinstance(item.get("content"), list)
        for content in item["content"]
        if isinstance(content, dict) and isinstance(content.get("text"), str)
    ]
    return StoredResponse(messages=prompt.messages, answer=texts)


def outputs_of(answer: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the items of an answer's last `output`."""
    for item in reversed(answer):
        if isinstance(item.get("output"), list):
            return [output for output in item["output"] if isinstance(output, dict)]
    return []


def _problem(body: Mapping[str, Any]) -> NotReplayable | None:
    if body.get("conversation") is not None:
        return NotReplayable(
            kind="server-history",
            reason="the prompt continues a conversation that is kept on the server",
        )
    if body.get("prompt") is not None:
        return NotReplayable(
            kind="stored-prompt", reason="the prompt is a template that is kept on the server"
        )
    return None


def _add_items(messages: list[Mapping[str, Any]], items: list[Any]) -> NotReplayable | None:
    first_own = len(messages)
    for item in items:
        if not isinstance(item, dict):
            raise RecordError("bad-field", "`input` of the body is not a list of objects")
        previous = messages[-1] if len(messages) > first_own else None
        if previous is not None and previous.get("role") != "assistant":
            previous = None
        kind = item.get("type", "message")
        made: dict[str, Any]
        if kind in ("function_call", "custom_tool_call"):
            made = {"tool_calls": [_call(item)]}
        elif kind == "reasoning":
            if item.get("encrypted_content"):
                return NotReplayable(
                    kind="encrypted-reasoning",
                    reason="the prompt holds encrypted reasoning, which only its server can read",
                )
            # vLLM's renderer gives it to the template under both names.
            text = _reasoning(item)
            made = {"reasoning": text, "reasoning_content": text}
        elif kind in ("function_call_output", "custom_tool_call_output"):
            messages.append(
                {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
            )
            continue
        elif kind == "message" and item.get("role") == "assistant":
            made = {"content": _assistant_text(item.get("content"))}
        elif kind == "message" and str(item.get("role")) in _CHAT_ROLES:
            messages.append({"role": item["role"], "content": _content(item.get("content"))})
            continue
        else:
            return NotReplayable(
                kind="unknown-item",
                reason=f"the prompt holds {type_name(kind)} item, which no known server renders",
            )
        _join(messages, previous, made)
    return None


def _join(
    messages: list[Mapping[str, Any]], previous: Mapping[str, Any] | None, made: dict[str, Any]
) -> None:
    """Make an item part of the assistant message in front of it, or a message of its own."""
    if previous is None:
        messages.append({"role": "assistant", **made})
    elif "tool_calls" in made:
        calls = [*previous.get("tool_calls", ()), *made["tool_calls"]]
        messages[-1] = {**previous, "tool_calls": calls}
    elif any(previous.get(name) is not None for name in made):
        messages.append({"role": "assistant", **made})
    else:
        messages[-1] = {**previous, **made}


def _call(item: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = item.get("arguments")
    if item.get("type") == "custom_tool_call":
        arguments = json.dumps({"input": item.get("input") or ""}, ensure_ascii=False)
    return {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": item.get("name"), "arguments": arguments},
    }


def _reasoning(item: Mapping[str, Any]) -> str:
    for name in ("content", "summary"):
        parts = item.get(name)
        if isinstance(parts, list) and parts and isinstance(parts[0], dict):
            text = parts[0].get("text")
            if isinstance(text, str):
                return text
    return ""


def _assistant_text(content: Any) -> Any:
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return content[0].get("text", "")
    return content


def _content(content: Any) -> Any:
    """Return a message's content with the parts' types as chat completions name them."""
    if not isinstance(content, list):
        return content
    return [_part(part) if isinstance(part, dict) else part for part in content]


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url") or ""}}
    return part


def _tools(tools: Any) -> list[Mapping[str, Any]] | None:
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RecordError("bad-field", "`tools` of the body is not a list of objects")
    # Only functions reach the template; the server runs its own tools by other means.
    return [
        {
            "type": "function",
            "function": {
                "name": tool.get("name"),
                "description": tool.get("description"),
                "parameters": tool.get("parameters"),
                **({"strict": tool["strict"]} if tool.get("strict") is not None else {}),
            },
        }
        for tool in tools
        if tool.get("type") == "function"
    ] or None


def _continues(items: Any) -> bool:
    """Say whether the last item is an answer to be continued."""
    if not isinstance(items, list) or not items or not isinstance(items[-1], dict):
        return False
    last = items[-1]
    kind = last.get("type", "message")
    return kind in ("message", "reasoning") and last.get("status") in ("in_progress", "incomplete")


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
