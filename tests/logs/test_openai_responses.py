"""Responses bodies: items as messages, and prompts rebuilt from the responses in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import Read, read_records

FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def record(number: int, output: list[Any] | None = None, **body: Any) -> dict[str, Any]:
    details = {"cached_tokens": 16, "cache_write_tokens": 4}
    usage = {"input_tokens": 20, "output_tokens": 2, "input_tokens_details": details}
    answer = {"id": f"resp_{number}", "object": "response", "output": output or [], "usage": usage}
    return {"request_id": f"r{number}", "path": "/v1/responses", "body": {"model": "m", **body},
            "response": answer}  # fmt: skip


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}]}  # fmt: skip


def read(folder: Path, *records: Any) -> Read:
    return read_records(folder, *records, log_format="openai-responses")


def chat(request: Request) -> ChatMessages:
    assert isinstance(request.prompt, ChatMessages)
    return request.prompt


def texts(request: Request) -> list[tuple[str, Any]]:
    return [(m["role"], m.get("content")) for m in chat(request).messages]


def test_instructions_and_text_become_messages(tmp_path: Path) -> None:
    (request,) = read(tmp_path, record(1, [said("Four.")], instructions="a", input="b")).requests

    assert texts(request) == [("system", "a"), ("user", "b")]
    assert request.endpoint == "/v1/responses"
    assert request.generated == RawText(text="Four.", add_special_tokens=False)
    assert (request.usage.num_prompt_tokens, request.usage.num_cached_tokens) == (20, 16)


def test_chain_is_rebuilt_from_stored_responses_with_new_instructions(tmp_path: Path) -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"text": "hm"}]}
    got = read(
        tmp_path,
        record(1, [thought, said("1")], instructions="first", input="a"),
        record(2, [said("2")], instructions="second", input="b", previous_response_id="resp_1"),
        record(3, [said("3")], input="c", previous_response_id="resp_2"),
        record(4, input="other branch", previous_response_id="resp_1"),
    )

    assert texts(got.requests[2]) == [
        ("user", "a"), ("assistant", "1"), ("user", "b"), ("assistant", "2"), ("user", "c"),
    ]  # fmt: skip
    assert texts(got.requests[1])[0] == ("system", "second")
    assert texts(got.requests[3]) == [
        ("user", "a"), ("assistant", "1"), ("user", "other branch"),
    ]  # fmt: skip


def test_chain_goes_over_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    read(tmp_path / "a", record(1, [said("1")], input="a"))
    read(tmp_path / "b", record(2, input="b", previous_response_id="resp_1"))
    got = Read(tmp_path / "a" / "log.jsonl", tmp_path / "b" / "log.jsonl")

    assert len(chat(got.requests[1]).messages) == 3


def test_history_on_the_server_is_not_replayed(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        record(1, input="a", previous_response_id="resp_0"),
        record(2, input="b", previous_response_id="resp_1"),
        record(3, input="c", conversation="conv_1"),
        record(4, input="d", prompt={"id": "pmpt_1"}),
    )

    kinds = [r.prompt.kind for r in got.requests if isinstance(r.prompt, NotReplayable)]
    assert kinds == ["server-history", "server-history", "server-history", "stored-prompt"]
    assert [r.usage.num_prompt_tokens for r in got.requests] == [20] * 4


def test_items_become_messages_as_in_vllm(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, image]},
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        said("Looking."),
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"z":2}'},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]  # fmt: skip
    (request,) = read(tmp_path, record(1, input=items)).requests

    def call(name: str, arguments: str) -> dict[str, Any]:
        return {"id": name, "type": "function",
                "function": {"name": "look", "arguments": arguments}}  # fmt: skip

    assert chat(request).messages == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "content": "Looking.",
            "tool_calls": [call("c1", '{"z":2}'), call("c2", "{}")],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]


def test_only_functions_reach_the_template(tmp_path: Path) -> None:
    tools = [FUNCTION, {"type": "web_search"}]
    (request,) = read(tmp_path, record(1, input="a", tools=tools)).requests

    assert [tool["function"]["name"] for tool in chat(request).tools or ()] == ["look"]


def test_encrypted_reasoning_and_unknown_items_are_not_replayed(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        record(1, input=[{"type": "reasoning", "encrypted_content": "x"}]),
        record(2, input=[{"type": "web_search_call", "id": "w"}]),
    )

    kinds = [r.prompt.kind for r in got.requests if isinstance(r.prompt, NotReplayable)]
    assert kinds == ["encrypted-reasoning", "unknown-item"]


def test_answer_that_ends_inside_is_continued(tmp_path: Path) -> None:
    unfinished = {**said("Fo"), "status": "incomplete"}
    items = [{"role": "user", "content": "a"}, unfinished]
    (request,) = read(tmp_path, record(1, input=items)).requests

    assert chat(request).continue_final_message
    assert not chat(request).add_generation_prompt


def test_answer_with_calls_is_not_all_that_was_generated(tmp_path: Path) -> None:
    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    (request,) = read(tmp_path, record(1, [said("a"), call], input="b")).requests

    assert request.generated is UNKNOWN


def test_input_for_embeddings_is_no_responses_body(tmp_path: Path) -> None:
    got = read(
        tmp_path, {"model": "m", "input": "embed me"}, {"body": {"model": "m", "input": ["a"]}}
    )

    assert [kind for _, kind in got.skips] == ["no-prompt", "no-prompt"]


def test_usage_at_the_end_of_a_stream_is_found(tmp_path: Path) -> None:
    events = [
        {"type": "response.created", "response": {"id": "resp_1", "output": [], "usage": None}},
        {"type": "response.output_text.delta", "delta": "Fo"},
        {"type": "response.completed", "response": record(1, [said("Four.")])["response"]},
    ]
    got = read(tmp_path, {"path": "/v1/responses", "body": {"input": "a"}, "response": events},
               record(2, input="b", previous_response_id="resp_1"))  # fmt: skip

    assert got.requests[0].usage.num_cached_tokens == 16
    assert len(chat(got.requests[1]).messages) == 3
