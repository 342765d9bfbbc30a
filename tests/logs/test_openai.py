"""OpenAI bodies, bare, in a gateway's records and as Batch input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import (
    ChatMessages,
    NotReplayable,
    RawText,
    Request,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import SHARED, Read, read_bytes, read_records

USER = {"role": "user", "content": "Which berth?"}
CHAT = {"model": "harbor-8b", "messages": [USER]}


def read_one(folder: Path, record: Any) -> Request:
    read = read_records(folder, record, log_format="openai")
    assert read.skipped == []
    (request,) = read.requests
    return request


def chat_of(folder: Path, **fields: Any) -> ChatMessages:
    prompt = read_one(folder, CHAT | fields).prompt
    assert isinstance(prompt, ChatMessages)
    return prompt


def gateway(body: Any, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-02T08:00:00.000Z", "request_id": "r", "status": 200,
            "path": "/v1/chat/completions", "body": body, **fields}  # fmt: skip


def test_gateway_record_is_carried(tmp_path: Path) -> None:
    request = read_one(
        tmp_path,
        gateway(
            CHAT | {"n": 2, "safety_identifier": "u-1"},
            tenant="acme",
            session_id="A",
            headers={"X-Api-Key-Id": "k1", "X-Many": ["a", "b"]},
            output_token_ids=[5, 6],
        ),
    )

    assert (request.request_id, request.arrival_s) == ("r", 1772438400.0)
    assert request.endpoint == "/v1/chat/completions"
    assert request.headers == {"x-api-key-id": "k1", "x-many": "a, b"}
    assert (request.identity.model, request.identity.tenant) == ("harbor-8b", "acme")
    assert (request.identity.user, request.session_id) == ("u-1", "A")
    assert request.num_samples == 2
    assert isinstance(request.generated, TokenIds)
    assert request.generated.token_ids.tolist() == [5, 6]
    assert request.record["tenant"] == "acme"


def test_key_order_of_the_wire_is_kept(tmp_path: Path) -> None:
    line = (
        b'{"messages": [{"content": "a", "role": "user"}], '
        b'"tools": [{"z": 1, "a": {"y": 1, "b": 2}}]}\n'
    )
    (request,) = read_bytes(tmp_path, line).requests

    assert isinstance(request.prompt, ChatMessages)
    assert request.prompt.tools is not None
    assert list(request.prompt.messages[0]) == ["content", "role"]
    assert repr(request.prompt.tools[0]) == "{'z': 1, 'a': {'y': 1, 'b': 2}}"


def test_chat_defaults_are_the_servers(tmp_path: Path) -> None:
    assert chat_of(tmp_path) == ChatMessages(
        messages=[USER],
        add_generation_prompt=True,
        continue_final_message=False,
        add_special_tokens=False,
    )


def test_all_that_changes_the_rendering_is_carried(tmp_path: Path) -> None:
    fields = {
        "tools": [{"type": "function"}], "documents": [{"text": "d"}], "chat_template": "{{ 1 }}",
        "add_generation_prompt": False, "continue_final_message": True, "add_special_tokens": True,
    }  # fmt: skip
    chat = chat_of(
        tmp_path,
        chat_template_kwargs={"enable_thinking": False},
        reasoning_effort="low",
        **fields,
    )

    assert chat.chat_template_kwargs == {"enable_thinking": False, "reasoning_effort": "low"}
    assert {name: getattr(chat, name) for name in fields} == fields


def test_completions_add_special_tokens_by_default(tmp_path: Path) -> None:
    assert read_one(tmp_path, {"prompt": "a"}).prompt == RawText(text="a", add_special_tokens=True)


def test_each_prompt_of_a_list_is_a_request(tmp_path: Path) -> None:
    usage = {"usage": {"prompt_tokens": 9}}
    read = read_records(
        tmp_path,
        {"id": "c", "prompt": ["a", "b"], "response": usage},
        {"id": "d", "prompt": [[1, 2], [3]]},
        {"id": "e", "prompt": [1, 2]},
    )

    assert [r.request_id for r in read.requests] == ["c-0", "c-1", "d-0", "d-1", "e"]
    assert read.lines == [1, 1, 2, 2, 3]
    assert read.stream.num_records == 3
    assert read.requests[0].usage.num_prompt_tokens is UNKNOWN
    ids = [r.prompt.token_ids.tolist() for r in read.requests if isinstance(r.prompt, TokenIds)]
    assert ids == [[1, 2], [3], [1, 2]]


def test_batch_input_line_is_read(tmp_path: Path) -> None:
    request = read_one(
        tmp_path,
        {"custom_id": "job", "method": "POST", "url": "/v1/chat/completions", "body": CHAT},
    )

    assert (request.request_id, request.arrival_s) == ("job", UNKNOWN)
    assert isinstance(request.prompt, ChatMessages)


def test_body_as_text_is_decoded(tmp_path: Path) -> None:
    request = read_one(tmp_path, gateway('{"messages": [{"role": "user", "content": "a"}]}'))

    assert isinstance(request.prompt, ChatMessages)


def test_cut_body_is_a_request_that_cannot_be_replayed(tmp_path: Path) -> None:
    request = read_one(tmp_path, gateway('{"messages": [{"role": "user", "con'))

    assert isinstance(request.prompt, NotReplayable)
    assert request.prompt.kind == "cut-body"


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}}, None),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, None),
        ({"prompt_tokens": 9, "prompt_tokens_details": {}}, UNKNOWN),
        ({"prompt_tokens": 9}, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_cached_tokens_of_null_absent_and_zero_are_kept_apart(
    tmp_path: Path, usage: Any, cached: Any
) -> None:
    request = read_one(tmp_path, gateway(CHAT, response={"usage": usage}))

    assert request.usage.num_cached_tokens == cached
    assert request.usage.num_prompt_tokens == (UNKNOWN if usage is None else 9)


def test_usage_stands_in_a_streams_last_chunk(tmp_path: Path) -> None:
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Be"}}]},
        {"choices": [{"index": 0, "delta": {"content": "rth 4"}}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    ]
    text = "".join(f"data: {line}\n\n" for line in map(_json, chunks)) + "data: [DONE]\n\n"
    for response in (chunks, text, {"body": text}):
        request = read_one(tmp_path, gateway(CHAT, response=response))

        assert request.usage.num_prompt_tokens == 7
        assert request.generated == RawText(text="Berth 4", add_special_tokens=False)


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


def test_answer_whose_text_is_not_all_of_it_is_unknown(tmp_path: Path) -> None:
    message = {"content": "ok", "tool_calls": [{"id": "1"}]}
    request = read_one(tmp_path, gateway(CHAT, response={"choices": [{"message": message}]}))

    assert request.generated is UNKNOWN


def test_salt_that_the_body_lacks_was_not_sent_but_the_adapter_is_unknown(tmp_path: Path) -> None:
    identity = read_one(tmp_path, gateway(CHAT)).identity

    assert (identity.cache_salt, identity.extra_key) == (None, None)
    assert (identity.lora_name, identity.tenant, identity.dtype) == (UNKNOWN, UNKNOWN, UNKNOWN)


def test_salt_key_and_adapter_of_the_body_are_identity(tmp_path: Path) -> None:
    body = CHAT | {"cache_salt": "s", "extra_key": "e", "lora_path": "/l"}
    identity = read_one(tmp_path, gateway(body)).identity

    assert (identity.cache_salt, identity.extra_key, identity.lora_path) == ("s", "e", "/l")


def test_adapter_beside_the_body_is_identity_and_null_is_none(tmp_path: Path) -> None:
    named = read_one(tmp_path, gateway(CHAT, lora={"name": "legal", "int_id": 2})).identity
    none = read_one(tmp_path, gateway(CHAT, lora=None)).identity

    assert (named.lora_name, named.lora_revision) == ("legal", "int_id=2")
    assert (none.lora_name, none.lora_revision, none.lora_path) == (None, None, None)


def test_instance_names_the_kv_dtype(tmp_path: Path) -> None:
    request = read_one(tmp_path, gateway(CHAT, instance={"kv_cache_dtype": "fp8_e5m2", "tp": 2}))

    assert request.identity.kv_cache_dtype == "fp8_e5m2"


@pytest.mark.parametrize(
    ("fields", "reads"),
    [
        ({}, True),
        ({"prompt_logprobs": None}, True),
        ({"prompt_logprobs": 0}, False),
        ({"prompt_logprobs": 5}, False),
    ],
)
def test_prompt_logprobs_switch_reading_off(
    tmp_path: Path, fields: dict[str, Any], reads: bool
) -> None:
    assert read_one(tmp_path, CHAT | fields).reads_cache is reads


def test_echoed_logprobs_of_completions_switch_reading_off(tmp_path: Path) -> None:
    body = {"prompt": "a", "logprobs": 1}

    assert read_one(tmp_path, body).reads_cache
    assert not read_one(tmp_path, body | {"echo": True}).reads_cache


@pytest.mark.parametrize(
    ("place", "session"),
    [
        ({"session_id": "b"}, "b"),
        ({"vllm_xargs": {"session_id": "x"}}, "x"),
        ({"session_params": {"id": "p"}}, "p"),
        ({}, UNKNOWN),
    ],
)
def test_session_is_found(tmp_path: Path, place: dict[str, Any], session: Any) -> None:
    assert read_one(tmp_path, gateway(CHAT | place)).session_id == session


def test_session_header_goes_before_xargs(tmp_path: Path) -> None:
    body = CHAT | {"vllm_xargs": {"session_id": "x"}}
    request = read_one(tmp_path, gateway(body, headers={"X-Session-ID": "h"}))

    assert request.session_id == "h"


@pytest.mark.parametrize(
    ("status", "is_refused"), [(429, True), (400, True), (500, False), (499, False)]
)
def test_failed_request_is_a_request_replayed_unless_refused(
    tmp_path: Path, status: int, is_refused: bool
) -> None:
    request = read_one(tmp_path, gateway(CHAT, status=status))

    assert isinstance(request.prompt, NotReplayable) is is_refused


def test_truncation_of_ids_is_applied_and_of_text_is_not_replayable(tmp_path: Path) -> None:
    ids = read_one(tmp_path, {"prompt": [1, 2, 3], "truncate_prompt_tokens": 2}).prompt
    text = read_one(tmp_path, {"prompt": "abc", "truncate_prompt_tokens": 2}).prompt

    assert isinstance(ids, TokenIds)
    assert ids.token_ids.tolist() == [2, 3]
    assert isinstance(text, NotReplayable)


def test_system_blocks_of_messages_bodies_become_one_system_message(tmp_path: Path) -> None:
    body = CHAT | {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    request = read_one(tmp_path, gateway(body, path="/v1/messages"))

    assert isinstance(request.prompt, ChatMessages)
    assert request.prompt.messages[0] == {"role": "system", "content": "a\nb"}


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (gateway({"input": "embed me"}, path="/v1/embeddings"), "no-prompt"),
        ({"event": "started"}, "no-prompt"),
        (gateway({"messages": []}), "no-prompt"),
        (gateway({"prompt": []}, path="/v1/completions"), "no-prompt"),
        (gateway({"messages": ["a"]}), "bad-field"),
        (gateway({"prompt": ["a", 1]}, path="/v1/completions"), "bad-token-ids"),
        (gateway({"prompt": [[1], 2]}, path="/v1/completions"), "bad-token-ids"),
        (gateway(CHAT | {"tools": "all"}), "bad-field"),
        (gateway(CHAT | {"cache_salt": 5}), "bad-field"),
        (gateway(CHAT | {"add_generation_prompt": "yes"}), "bad-field"),
    ],
)
def test_record_without_a_prompt_is_one_skip_without_its_text(
    tmp_path: Path, record: Any, kind: str
) -> None:
    read = read_records(tmp_path, record, log_format="openai")

    assert read.skips == [(1, kind)]
    assert "berth" not in read.skipped[0].reason


def test_all_gateway_logs_of_the_cases_are_read() -> None:
    paths = sorted(SHARED.glob("cases/*/requests.jsonl"))
    if not paths:
        pytest.skip("the cases aren't here")
    for path in paths:
        read = Read(path)

        assert read.stream.num_records == len(read.items)
        assert {item.kind for item in read.skipped} <= {"nul-bytes", "cut-line", "cut-tail"}
