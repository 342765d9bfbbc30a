"""OpenTelemetry GenAI spans: old names and new ones, messages with parts, what is no call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import Read, read_bytes, read_records


def attribute(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"key": name, "value": {"intValue": str(value)}}
    text = value if isinstance(value, str) else json.dumps(value)
    return {"key": name, "value": {"stringValue": text}}


def span(attributes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"traceId": "t", "spanId": "s", "startTimeUnixNano": "1772438400250000000",
            "attributes": [attribute(*item) for item in attributes.items()], **fields}  # fmt: skip


def export(*spans: Any, **resource: Any) -> dict[str, Any]:
    attributes = [attribute(*item) for item in resource.items()]
    return {"resourceSpans": [{"resource": {"attributes": attributes},
                               "scopeSpans": [{"spans": list(spans)}]}]}  # fmt: skip


def read_one(folder: Path, attributes: dict[str, Any], **fields: Any) -> Request:
    (request,) = read_records(folder, export(span(attributes, **fields))).requests
    return request


CHAT = {"gen_ai.operation.name": "chat"}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Look"}]},
    {"role": "assistant", "parts": [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c", "name": "look", "arguments": {"z": 1, "a": "é"}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "rain"}]},
]  # fmt: skip


def test_messages_with_parts_become_openai_messages(tmp_path: Path) -> None:
    request = read_one(
        tmp_path,
        CHAT
        | {
            "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
            "gen_ai.input.messages": PARTS,
            "gen_ai.tool.definitions": [{"type": "function", "name": "look", "parameters": {}}],
        },
    )
    call = {"id": "c", "type": "function",
            "function": {"name": "look", "arguments": '{"z": 1, "a": "é"}'}}  # fmt: skip

    assert request.prompt == ChatMessages(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look"},
            {"role": "assistant", "reasoning_content": "hm", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ],
        tools=[{"type": "function", "function": {"name": "look", "parameters": {}}}],
    )


def test_identity_and_time_are_carried(tmp_path: Path) -> None:
    record = export(
        span(CHAT | {"gen_ai.request.model": "m", "gen_ai.response.id": "r"}),
        **{"session.id": "s", "enduser.id": "u", "service.name": "gw"},
    )
    (request,) = read_records(tmp_path, record).requests

    assert request.request_id == "r"
    assert request.arrival_s == pytest.approx(1772438400.25, abs=1e-6)
    assert (request.identity.model, request.identity.user, request.session_id) == ("m", "u", "s")
    assert request.record["service.name"] == "gw"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cache_read.input_tokens": 800,
          "gen_ai.usage.cache_creation.input_tokens": 96}, (1000, 800)),
        ({"gen_ai.usage.prompt_tokens": 7}, (7, UNKNOWN)),
        ({"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.cached_tokens": 0}, (7, 0)),
        ({"gen_ai.usage.input_tokens": 104, "gen_ai.usage.cache_read_input_tokens": 800,
          "gen_ai.usage.cache_creation_input_tokens": 96}, (1000, 800)),
        ({"llm.token_count.prompt": 9, "llm.token_count.prompt_details.cache_read": 4}, (9, 4)),
    ],
)  # fmt: skip
def test_usage_of_old_and_new_names(
    tmp_path: Path, attributes: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    usage = read_one(tmp_path, attributes).usage

    assert (usage.num_prompt_tokens, usage.num_cached_tokens) == expected


def test_messages_in_attributes_with_numbers_are_in_order(tmp_path: Path) -> None:
    attributes = {"llm.request.type": "chat", "gen_ai.prompt.10.role": "user",
                  "gen_ai.prompt.10.content": "b", "gen_ai.prompt.2.role": "system",
                  "gen_ai.prompt.2.content": "a", "gen_ai.completion.0.role": "assistant",
                  "gen_ai.completion.0.content": "c"}  # fmt: skip
    request = read_one(tmp_path, attributes)

    assert request.prompt == ChatMessages(
        messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    )
    assert request.generated == RawText(text="c", add_special_tokens=False)


def test_messages_in_events_are_found(tmp_path: Path) -> None:
    events = [
        {"name": "gen_ai.system.message", "attributes": [attribute("content", "a")]},
        {"name": "gen_ai.user.message", "attributes": [attribute("content", "b")]},
    ]
    request = read_one(tmp_path, CHAT, events=events)

    assert request.prompt == ChatMessages(
        messages=[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    )


def test_spans_of_other_kinds_are_set_aside(tmp_path: Path) -> None:
    operations = ("invoke_agent", "execute_tool", "embeddings")
    others = [{"http.request.method": "POST"}]
    others += [{"gen_ai.operation.name": operation} for operation in operations]
    spans = [span(attributes, spanId=str(n)) for n, attributes in enumerate([CHAT, *others])]
    read = read_records(tmp_path, export(*spans))

    assert len(read.requests) == 1
    assert read.stream.set_aside == {"other-span": 4}
    assert read.stream.num_records == 5


def test_call_that_two_spans_tell_of_is_counted_once(tmp_path: Path) -> None:
    caller = span(CHAT | {"gen_ai.usage.input_tokens": 7}, spanId="a")
    engine = span({"gen_ai.usage.prompt_tokens": 7}, spanId="b", parentSpanId="a")
    read = read_records(tmp_path, export(caller), export(engine))

    assert len(read.requests) == 1
    assert read.stream.set_aside == {"same-call": 1}


def test_prompt_is_opt_in_and_else_said_to_be_missing(tmp_path: Path) -> None:
    prompt = read_one(tmp_path, CHAT | {"gen_ai.usage.input_tokens": 7}).prompt

    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "no-prompt"


@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_file_of_one_object_is_read(tmp_path: Path, option: int) -> None:
    record = export(span(CHAT, spanId="a"), span(CHAT, spanId="b"))
    read = read_bytes(tmp_path, orjson.dumps(record, option=option), name="spans.json")

    assert len(read.requests) == 2
    assert read.stream.num_records == 2


def test_export_without_spans_is_skipped(tmp_path: Path) -> None:
    read: Read = read_records(tmp_path, export(span(CHAT)), export())

    assert read.skips == [(2, "no-prompt")]
