"""Messages bodies as vLLM's and SGLang's servers render them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, Request
from prefixaudit.logs import ReadOptions
from tests.logs.reading import DATA, Read, read_bytes

HEADER = "x-anthropic-billing-header: cc_version=2.1; cch=3fa91;"
USER = {"role": "user", "content": "Berths?"}


def read_one(folder: Path, record: Any, engine: str = "vllm", version: str = "0.33.0") -> Request:
    options = ReadOptions(log_format="anthropic", engine=engine, engine_version=version)
    read = read_bytes(folder, orjson.dumps(record) + b"\n", options)
    assert read.skipped == []
    (request,) = read.requests
    return request


def chat_of(folder: Path, body: dict[str, Any], **options: str) -> ChatMessages:
    record = {"path": "/v1/messages", "body": {"model": "m", "messages": [USER], **body}}
    prompt = read_one(folder, record, **options).prompt
    assert isinstance(prompt, ChatMessages)
    return prompt


def blocks(*texts: str) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in texts
    ]


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        ("vllm", "0.17.1", HEADER + "ab"),
        ("vllm", "0.20.1", HEADER + "ab"),
        ("vllm", "0.20.2", "ab"),
        ("vllm", "0.33.0", "ab"),
        ("sglang", "0.5.23", f"{HEADER}\na\nb"),
    ],
)
def test_system_blocks_are_joined_as_the_server_does(
    tmp_path: Path, engine: str, version: str, expected: str
) -> None:
    chat = chat_of(tmp_path, {"system": blocks(HEADER, "a", "b")}, engine=engine, version=version)

    assert chat.messages[0] == {"role": "system", "content": expected}


@pytest.mark.parametrize(("version", "kept"), [("0.31.0", f"{HEADER}\nrest"), ("0.32.0", "rest")])
def test_header_line_of_a_system_text_is_dropped_later(
    tmp_path: Path, version: str, kept: str
) -> None:
    """The Messages endpoint looks for it in blocks only; from 0.32.0 on every chat does."""
    text = f"{HEADER}\nrest"
    messages = chat_of(tmp_path, {"system": text}, version=version)
    record = {"body": {"messages": [{"role": "system", "content": text}, USER]}}
    chat = read_one(tmp_path, record, version=version).prompt

    assert messages.messages[0]["content"] == kept
    assert isinstance(chat, ChatMessages)
    assert chat.messages[0]["content"] == kept


def test_system_that_was_nothing_but_the_header_leaves_no_message(tmp_path: Path) -> None:
    assert chat_of(tmp_path, {"system": blocks(HEADER)}).messages == [USER]


def test_tool_use_and_results_become_calls_and_tool_messages(tmp_path: Path) -> None:
    messages = [
        USER,
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"z": 2.0, "a": "é"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"type": "text", "text": "And?"}]},
    ]  # fmt: skip
    chat = chat_of(tmp_path, {"messages": messages})

    assert chat.messages == [
        USER,
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    # json.dumps of the server: key order kept, 2.0 kept, not ASCII escaped
                    "function": {"name": "look", "arguments": '{"z": 2.0, "a": "\\u00e9"}'},
                }
            ],
            "content": "Looking.",
        },
        {"role": "tool", "tool_call_id": "t1", "content": "a\nb"},
        {"role": "user", "content": "And?"},
    ]


def test_user_message_of_results_only_becomes_tool_messages_only(tmp_path: Path) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a"}
    chat = chat_of(tmp_path, {"messages": [USER, {"role": "user", "content": [result]}]})

    assert [message["role"] for message in chat.messages] == ["user", "tool"]


def test_images_become_urls(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    chat = chat_of(tmp_path, {"messages": [{"role": "user", "content": content}]})

    assert [part.get("image_url") for part in chat.messages[0]["content"]] == [
        None,
        {"url": "data:image/png;base64,AA=="},
        {"url": "https://example.org/a.png"},
    ]


def test_tools_become_functions(tmp_path: Path) -> None:
    chat = chat_of(tmp_path, {"tools": [{"name": "look", "input_schema": {"type": "object"}}]})

    assert chat.tools == [
        {
            "type": "function",
            "function": {"name": "look", "description": None, "parameters": {"type": "object"}},
        }
    ]


def test_cache_control_changes_nothing(tmp_path: Path) -> None:
    marked = {"role": "user", "content": blocks("Berths?")}

    assert chat_of(tmp_path, {"messages": [marked]}).messages == [USER]


def test_unknown_block_is_not_replayed(tmp_path: Path) -> None:
    content = [{"type": "document", "source": {}}]
    body = {"model": "m", "system": "s", "messages": [{"role": "user", "content": content}]}
    prompt = read_one(tmp_path, body).prompt

    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "messages-block"


def test_type_that_is_no_name_is_not_shown(tmp_path: Path) -> None:
    content = [{"type": "My secret plan"}]
    body = {"model": "m", "system": "s", "messages": [{"role": "user", "content": content}]}
    prompt = read_one(tmp_path, body).prompt

    assert isinstance(prompt, NotReplayable)
    assert "secret" not in prompt.reason


def test_usage_is_the_sum_of_three_and_writing_is_no_hit(tmp_path: Path) -> None:
    usage = {"input_tokens": 104, "cache_read_input_tokens": 800,
             "cache_creation_input_tokens": 96, "output_tokens": 10}  # fmt: skip
    answer = {"type": "message", "role": "assistant", "usage": usage,
              "content": [{"type": "text", "text": "Four."}]}  # fmt: skip
    body = {"model": "m", "messages": [USER], "metadata": {"user_id": "u"}}
    request = read_one(tmp_path, {"path": "/v1/messages", "body": body, "response": answer})

    assert request.usage.num_prompt_tokens == 1000
    assert request.usage.num_cached_tokens == 800
    assert request.generated == RawText(text="Four.", add_special_tokens=False)
    assert request.identity.user == "u"


def test_usage_of_a_stream_is_that_of_its_first_and_last_event(tmp_path: Path) -> None:
    stream = (
        'event: message_start\ndata: {"type": "message_start", "message": {"role": "assistant", '
        '"content": [], "usage": {"input_tokens": 9, "cache_read_input_tokens": 512}}}\n\n'
        'event: message_delta\ndata: {"type": "message_delta", "usage": {"output_tokens": 4}}\n\n'
    )
    record = {"path": "/v1/messages", "body": {"messages": [USER]}, "response": stream}
    usage = read_one(tmp_path, record).usage

    assert (usage.num_prompt_tokens, usage.num_completion_tokens) == (521, 4)


def test_counting_tokens_is_no_request(tmp_path: Path) -> None:
    record = {"path": "/v1/messages/count_tokens", "body": {"messages": [USER], "system": "a"}}
    options = ReadOptions(log_format="anthropic")
    read = read_bytes(tmp_path, orjson.dumps(record) + b"\n", options)

    assert read.skips == [(1, "no-prompt")]


def hits_of(options: ReadOptions) -> list[int]:
    """Hit tokens by comparing prompts one with another, a token a byte, in blocks of 16.

    As the case's template renders them: a begin token, and a token in front of and behind each
    message's bytes.
    """
    prompts: list[list[object]] = []
    for request in Read(DATA / "B013-requests.jsonl", options=options).requests:
        assert isinstance(request.prompt, ChatMessages)
        ids: list[object] = ["begin"]
        for message in request.prompt.messages:
            ids += [message["role"], *message["content"].encode(), "end"]
        prompts.append([*ids, "assistant"])
    hits = []
    for number, prompt in enumerate(prompts):
        shared = [0]
        for earlier in prompts[:number]:
            pairs = zip(prompt, earlier, strict=False)
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(earlier))
            shared.append(min(same, len(prompt) - 1) // 16 * 16)
        hits.append(max(shared))
    return hits


def test_billing_header_ends_the_shared_prefix_unless_it_is_dropped() -> None:
    """Case B013, with figures of its expected.json."""
    assert hits_of(ReadOptions(engine="vllm", engine_version="0.17.1")) == [0, 64, 64]
    assert hits_of(ReadOptions(engine="vllm", engine_version="0.33.0")) == [0, 400, 448]
    assert hits_of(ReadOptions()) == [0, 64, 64]
