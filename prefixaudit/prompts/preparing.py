"""What a server does to a chat before it hands it to the template, by engine and version.

Nothing of this is left to the installed transformers: 5.24 drops keys whose value is null, older
releases and the renderer itself pass them on, and servers have rules of their own. Without an
engine everything is passed on as the client sent it, but for content parts: a template that doesn't
walk through parts gets their text, joined, since all servers do that.

The rules of the servers themselves are in vllm_chat.py and sglang_chat.py, each with its source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixaudit.core.request import ChatMessages
from prefixaudit.prompts import sglang_chat, vllm_chat
from prefixaudit.prompts.content_format import NEWEST_VLLM
from prefixaudit.prompts.content_parts import joined, part_for_template
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.server_rules import ServerRules
from prefixaudit.prompts.templates import TemplateFacts
from prefixaudit.prompts.versions import reached


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMessages:
    """Messages as the template gets them, and what was among them.

    `has_unknown_parts`: content parts that are neither text nor media, passed on as they are.
    """

    messages: Sequence[Mapping[str, Any]]
    has_null_content: bool
    has_unknown_parts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChat:
    """A chat as the template gets it.

    `prefix` is tokenized by itself and put behind the prompt's tokens: SGLang continues a final
    message that way. `other_tools` are tried where the template fails on `chat.tools`.
    """

    chat: ChatMessages
    has_null_content: bool
    has_unknown_parts: bool
    prefix: str = ""
    other_tools: Sequence[Mapping[str, Any]] | None = None


def prepare_chat(
    chat: ChatMessages,
    rules: ServerRules,
    facts: TemplateFacts,
    image_placeholder: str | None = None,
) -> PreparedChat:
    """Apply a server's rules to a whole chat: messages, tools and the template's variables.

    Raises Refusal for a chat that the server refuses.
    """
    prepared = prepare(chat.messages, rules, facts, image_placeholder)
    messages = prepared.messages
    prefix = ""
    tools = chat.tools
    other_tools = None
    variables = chat.chat_template_kwargs
    continues = chat.continue_final_message
    adds_prompt = chat.add_generation_prompt
    documents = chat.documents
    adds_special_tokens = chat.add_special_tokens
    if rules.server == "vllm":
        if tools is not None and not tools and vllm_chat.refuses_no_tools(rules.version):
            raise Refusal("invalid-request", "`tools` is an empty list: the server refuses it")
        tools = vllm_chat.tools_for_template(tools, rules.version)
        variables = vllm_chat.variables(variables, chat.reasoning_effort, rules.version)
    elif rules.server == "sglang":
        tools, other_tools = sglang_chat.tools_for_template(tools, chat.tool_choice, rules.version)
        variables = sglang_chat.variables(variables, chat.reasoning_effort, rules.version)
        messages, prefix = sglang_chat.last_turn(
            messages, continues=chat.continue_final_message, version=rules.version
        )
        # The body has no such fields there: the prompt for the answer is always added.
        continues, adds_prompt, documents, adds_special_tokens = False, True, None, False
    return PreparedChat(
        chat=ChatMessages(
            messages=messages,
            tools=tools,
            documents=documents,
            chat_template=chat.chat_template,
            chat_template_kwargs=variables,
            add_generation_prompt=adds_prompt,
            continue_final_message=continues,
            add_special_tokens=adds_special_tokens,
            changes_media=chat.changes_media,
        ),
        has_null_content=prepared.has_null_content,
        has_unknown_parts=prepared.has_unknown_parts,
        prefix=prefix,
        other_tools=other_tools,
    )


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
        rules.content_parts == "auto" and not _takes_parts(rules, facts)
    )
    prepared: list[Mapping[str, Any]] = []
    has_null_content = has_unknown_parts = False
    for message in messages:
        if not isinstance(message, Mapping):
            raise Refusal("template-error", "a message of this chat isn't an object")
        message = dict(message)  # the renderer takes nothing else
        content = message.get("content", "")
        has_null_content = has_null_content or content is None
        if rules.server == "vllm":
            message = vllm_chat.with_known_keys(message, rules.version)
        elif rules.server == "sglang":
            message = sglang_chat.with_known_keys(message, rules.version)
        if content is None:
            if rules.null_content == "empty":
                message["content"] = [] if rules.server == "vllm" and not joins else ""
        elif isinstance(content, list):
            parts = [part_for_template(part, image_placeholder) for part in content]
            has_unknown_parts = has_unknown_parts or any(part is None for part in parts)
            message["content"] = _content(content, parts, rules, image_placeholder, joins=joins)
        elif rules.server == "vllm" and not joins and isinstance(content, str):
            # `_parse_chat_message_content`: text is one part, and no content is none.
            text = {"type": "text", "text": content}
            sent = "content" in message and vllm_chat.keeps_part(text, rules.version)
            message["content"] = [text] if sent else []
        elif rules.server is not None:
            message["content"] = content
        if rules.server == "vllm":
            message = vllm_chat.with_tool_text(message, rules.version)
        elif rules.server == "sglang":
            message = sglang_chat.with_tool_text(message, rules.version)
        if rules.null_content == "drop" and None in message.values():
            message = {key: value for key, value in message.items() if value is not None}
        if rules.tool_arguments == "object" and message.get("role") == "assistant":
            message = _with_parsed_calls(message, rules)
        prepared.append(message)
    if rules.server == "vllm":
        prepared = vllm_chat.without_developers(prepared, rules.version, facts.names_developer)
    return PreparedMessages(
        messages=prepared,
        has_null_content=has_null_content,
        has_unknown_parts=has_unknown_parts,
    )


def _takes_parts(rules: ServerRules, facts: TemplateFacts) -> bool:
    if rules.server == "vllm":
        guess = vllm_chat.guess_for(rules.version)
    elif rules.server == "sglang":
        guess = sglang_chat.guess_for(rules.version)
    else:
        guess = NEWEST_VLLM
    return guess in facts.part_guesses


def _content(
    content: Sequence[Any],
    parts: Sequence[Any],
    rules: ServerRules,
    image_placeholder: str | None,
    *,
    joins: bool,
) -> Any:
    if joins:
        # vLLM leaves empty texts out (`if parse_res`, from 0.6.4), SGLang joins all.
        keeps_empty = rules.server != "vllm" or not reached(rules.version, since=(0, 6, 4))
        return joined(
            parts,
            rules.part_separator,
            image_placeholder,
            keeps_empty=keeps_empty,
            ends_line=not reached(rules.version, since=(0, 16, 0)) and rules.server == "vllm",
        )
    kept = [old if new is None else new for new, old in zip(parts, content, strict=True)]
    if rules.server == "vllm":
        return [
            vllm_chat.text_part(part) for part in kept if vllm_chat.keeps_part(part, rules.version)
        ]
    if rules.server == "sglang":
        return [sglang_chat.text_part(part) for part in kept]
    return kept


def _with_parsed_calls(message: dict[str, Any], rules: ServerRules) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    if not calls:  # an empty list would lead templates off the normal path
        if rules.server == "vllm" and not vllm_chat.drops_no_calls(rules.version):
            return message
        if rules.server == "sglang":
            return message
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return {**message, "tool_calls": [_parsed_call(call, rules) for call in calls]}


def _parsed_call(call: Any, rules: ServerRules) -> Any:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    arguments = call["function"].get("arguments")
    if rules.server == "sglang":
        arguments = sglang_chat.parsed_arguments(arguments, rules.version)
    elif rules.server == "vllm":
        arguments = vllm_chat.parsed_arguments(arguments, rules.version)
    elif isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise Refusal(
                "invalid-tool-arguments",
                "the arguments of a tool call aren't valid JSON: the server refuses them",
            ) from None
    elif not arguments:
        arguments = {}
    return {**call, "function": {**call["function"], "arguments": arguments}}
