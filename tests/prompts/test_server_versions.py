"""What vLLM's and SGLang's servers make of a chat, release by release.

Expected values are worked out by hand from the releases' sources (see vllm_chat, sglang_chat).
"""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.core.request import ChatMessages
from prefixaudit.prompts import Refusal, TemplateRenderer, rules_of
from prefixaudit.prompts.preparing import PreparedChat, prepare_chat

TEXT = "{{ messages[0].content }}"
PARTS = "{% for message in messages %}{% for p in message.content %}{% endfor %}{% endfor %}"
MACRO = (
    "{% macro show(value) %}{% for p in value %}{{ p }}{% endfor %}{% endmacro %}"
    "{% for message in messages %}{{ show(ARGUMENT) }}{% endfor %}"
)
RENDERER = TemplateRenderer()


def prepared(engine: str, body: dict[str, Any], template: str = TEXT) -> PreparedChat:
    name, _, version = engine.partition("@")
    rules = rules_of(name, version or None)
    return prepare_chat(ChatMessages(**body), rules, RENDERER.facts(template))


def message(engine: str, sent: dict[str, Any], template: str = TEXT) -> dict[str, Any]:
    # A turn of the user's behind it, since SGLang makes a last answer the user's.
    chat = [sent, {"role": "user", "content": "go on"}]
    return dict(prepared(engine, {"messages": chat}, template).chat.messages[0])


def call(arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "arguments": arguments}, "id": "c"}


@pytest.mark.parametrize(
    ("engine", "template", "reads"),
    [
        ("vllm@0.6.4", PARTS, False),
        ("vllm@0.6.5", PARTS, True),
        ("vllm", MACRO.replace("ARGUMENT", "message.content"), True),
        ("vllm@0.29.0", MACRO.replace("ARGUMENT", "message.content"), False),
        ("vllm", MACRO.replace("ARGUMENT", "message.tool_calls"), False),
        ("vllm@0.22.0", "{% for p in content %}{% endfor %}", True),
        ("vllm@0.21.0", "{% for p in content %}{% endfor %}", False),
        ("sglang@0.4.8", PARTS.replace("message.", "msg."), False),
        ("sglang@0.5.1", PARTS.replace("message.", "msg."), True),
        ("sglang@0.5.2", "no image here", False),
        ("sglang@0.5.3", "no image here", True),
    ],
)
def test_a_template_gets_parts_where_its_release_takes_it_for_one(
    engine: str, template: str, reads: bool
) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    found = message(engine, {"role": "user", "content": parts}, template)["content"]

    assert found == (parts if reads else "a b" if "sglang" in engine else "a\nb")


def test_vllm_wraps_text_and_makes_null_no_parts() -> None:
    assert message("vllm", {"role": "user", "content": "a"}, PARTS)["content"] == [
        {"type": "text", "text": "a"}
    ]
    for sent in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert message("vllm", sent, PARTS)["content"] == []
        assert message("vllm", sent)["content"] == ""
        assert message("sglang", sent, PARTS)["content"] == ""


def test_vllm_joins_no_empty_parts_and_tool_results_always() -> None:
    parts = [{"type": "text", "text": text} for text in ("a", "", "b")]

    assert message("vllm", {"role": "user", "content": parts})["content"] == "a\nb"
    result = {"role": "tool", "tool_call_id": "c", "content": parts}
    assert message("vllm@0.20.0", result, PARTS)["content"] == "a\n\nb"
    assert message("vllm@0.19.0", result, PARTS)["content"] == parts


@pytest.mark.parametrize(
    ("engine", "text", "parsed"),
    [
        ("vllm@0.6.0", '{"a": 1}', '{"a": 1}'),
        ("vllm@0.6.1", '{"a": 1}', {"a": 1}),
        ("vllm@0.10.2", "", Refusal),
        ("vllm@0.11.0", "", {}),
        ("vllm@0.22.0", "null", None),
        ("vllm@0.23.0", "null", {}),
        ("vllm@0.28.0", "[1]", [1]),
        ("vllm@0.29.0", "[1]", {}),
        ("vllm@0.28.0", '{"cut', Refusal),
        ("vllm@0.29.0", '{"cut', {}),
        ("sglang@0.5.1", '{"a": 1}', '{"a": 1}'),
        ("sglang@0.5.2", '{"a": 1}', {"a": 1}),
        ("sglang@0.5.12", "[1]", [1]),
        ("sglang@0.5.13", "[1]", Refusal),
        ("sglang", "", Refusal),
    ],
)
def test_arguments_are_parsed_as_the_release_does(engine: str, text: str, parsed: Any) -> None:
    sent = {"role": "assistant", "content": "", "tool_calls": [call(text)]}

    if parsed is Refusal:
        with pytest.raises(Refusal, match="arguments"):
            message(engine, sent)
    else:
        function = message(engine, sent)["tool_calls"][0]["function"]
        assert function == {"name": "f", "arguments": parsed}


def test_calls_have_their_types_order_of_keys() -> None:
    sent = {"role": "assistant", "content": "", "tool_calls": [call("{}")]}

    (ours,) = message("vllm", sent)["tool_calls"]
    assert (list(ours), list(ours["function"])) == (["id", "function", "type"],
                                                    ["arguments", "name"])  # fmt: skip
    (theirs,) = message("sglang", sent)["tool_calls"]
    assert list(theirs) == ["id", "index", "type", "function"]
    assert list(theirs["function"]) == ["name", "arguments"]


@pytest.mark.parametrize(
    ("version", "field", "content", "seen"),
    [
        ("0.11.0", "reasoning", "a", False),
        ("0.11.1", "reasoning", "a", True),
        ("0.21.0", "reasoning_content", "a", False),
        ("0.22.0", "reasoning_content", "a", True),
        ("0.33.0", "reasoning", None, False),
    ],
)
def test_vllm_hands_reasoning_on_by_release(
    version: str, field: str, content: str | None, seen: bool
) -> None:
    found = message(f"vllm@{version}", {"role": "assistant", "content": content, field: "why"})

    assert found.get("reasoning") == found.get("reasoning_content") == ("why" if seen else None)


def test_unknown_keys_of_messages_reach_no_template() -> None:
    sent = {"role": "user", "content": "a", "name": "n", "cache_control": {"type": "ephemeral"}}

    assert message("vllm", sent) == {"role": "user", "content": "a", "name": "n"}
    assert message("sglang", sent) == {"role": "user", "content": "a"}


def test_developers_become_the_one_system_message_from_vllm_0_23() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "developer", "content": "d"},
    ]
    body = {"messages": chat}

    assert prepared("vllm@0.23.0", body).chat.messages == [
        {"role": "system", "content": "s\n\nd"},
        {"role": "user", "content": "u"},
    ]
    for engine, template in (("vllm@0.22.0", TEXT), ("vllm", TEXT + "{{ 'developer' }}")):
        roles = [each["role"] for each in prepared(engine, body, template).chat.messages]
        assert roles == ["system", "user", "developer"]


def test_tools_are_written_as_the_servers_types_are() -> None:
    tool = {"function": {"parameters": {}, "name": "f", "more": 1}, "type": "function"}
    body = {"messages": [], "tools": [tool], "tool_choice": "none"}

    (new,) = prepared("vllm", body).chat.tools or ()
    assert list(new) == ["type", "function"]
    assert list(new["function"].items()) == [
        ("name", "f"),
        ("description", None),
        ("parameters", {}),
    ]
    (old,) = prepared("vllm@0.26.0", body).chat.tools or ()
    assert list(old["function"])[3:] == ["more"]
    assert prepared("sglang", body).chat.tools is None

    body["tool_choice"] = "auto"
    wrapped: dict[str, Any] = {"description": None, "name": "f", "parameters": {}, "strict": False}
    assert prepared("sglang@0.5.8", body).chat.tools == [wrapped]
    assert prepared("sglang@0.5.9", body).chat.tools == [{"type": "function", "function": wrapped}]
    (kept,) = prepared("sglang@0.5.23", body).chat.tools or ()
    assert list(kept["function"]) == ["parameters", "name", "description"]


def test_an_empty_list_of_tools_is_refused_from_vllm_0_20() -> None:
    body: dict[str, Any] = {"messages": [], "tools": []}

    assert prepared("vllm@0.19.0", body).chat.tools == []
    with pytest.raises(Refusal, match="empty"):
        prepared("vllm@0.20.0", body)


def test_sglang_makes_a_last_answer_the_users_or_continues_it() -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    }

    last = prepared("sglang@0.5.8", body).chat.messages[-1]
    assert last == {"role": "user", "content": "a"}
    assert prepared("sglang@0.5.7", body).chat.messages[-1]["role"] == "assistant"
    found = prepared("sglang", {**body, "continue_final_message": True})
    assert (len(found.chat.messages), found.prefix) == (1, "a")
    assert found.chat.add_generation_prompt
    assert not found.chat.continue_final_message


@pytest.mark.parametrize(
    ("engine", "effort", "expected"),
    [
        ("vllm@0.13.0", "low", {}),
        ("vllm@0.14.0", "low", {"reasoning_effort": "low"}),
        ("vllm@0.22.0", "none", {"reasoning_effort": "none", "enable_thinking": False}),
        ("sglang@0.5.9", None, {"reasoning_effort": "medium"}),
        ("sglang@0.5.10", None, {}),
        (
            "sglang@0.5.16",
            "low",
            {"reasoning_effort": "low", "thinking": True, "enable_thinking": True},
        ),
    ],
)
def test_reasoning_effort_sets_variables(
    engine: str, effort: str | None, expected: dict[str, Any]
) -> None:
    given = {} if effort is None else {"reasoning_effort": effort}
    body: dict[str, Any] = {
        "messages": [],
        "chat_template_kwargs": given,
        "reasoning_effort": effort,
    }

    assert dict(prepared(engine, body).chat.chat_template_kwargs) == expected


@pytest.mark.parametrize(("version", "content"), [("0.15.0", "<i>\n"), ("0.16.0", "<i>")])
def test_vllm_ends_the_line_of_an_image_without_text_before_0_16(
    version: str, content: str
) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    chat = ChatMessages(messages=[{"role": "user", "content": [image]}])

    found = prepare_chat(chat, rules_of("vllm", version), RENDERER.facts(TEXT), "<i>")

    assert found.chat.messages[0]["content"] == content
