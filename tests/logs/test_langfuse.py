"""Langfuse exports: rows of both spellings, owners on traces, counts with and without cached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import Read, read_bytes, read_records

USER = {"role": "user", "content": "Which berth?"}


def row(**fields: Any) -> dict[str, Any]:
    return {"id": "o1", "trace_id": "t1", "type": "GENERATION",
            "start_time": "2026-03-02 08:00:00.250000", "provided_model_name": "m",
            "input": json.dumps([USER]), "output": None, "usage_details": {}, **fields}  # fmt: skip


def read_one(folder: Path, **fields: Any) -> Request:
    (request,) = read_records(folder, row(**fields), log_format="langfuse").requests
    return request


def test_row_of_the_blob_export_is_carried(tmp_path: Path) -> None:
    request = read_one(tmp_path, user_id="u", session_id="s", output=json.dumps(
        {"role": "assistant", "content": "Four."}))  # fmt: skip

    assert request.prompt == ChatMessages(messages=[USER])
    assert (request.request_id, request.arrival_s) == ("o1", 1772438400.25)
    assert (request.identity.model, request.identity.user, request.session_id) == ("m", "u", "s")
    assert request.generated == RawText(text="Four.", add_special_tokens=False)


def test_row_of_the_api_is_carried(tmp_path: Path) -> None:
    record = {"id": "o1", "traceId": "t1", "type": "GENERATION", "model": "m",
              "startTime": "2026-03-02T08:00:00.250Z", "userId": "u", "sessionId": "s",
              "input": {"messages": [USER], "tools": [{"type": "function"}]},
              "usageDetails": {"input": 40, "output": 3, "total": 43}}  # fmt: skip
    (request,) = read_records(tmp_path, record).requests

    assert isinstance(request.prompt, ChatMessages)
    assert request.prompt.tools == [{"type": "function"}]
    assert (request.identity.model, request.identity.user, request.session_id) == ("m", "u", "s")
    assert request.usage.num_prompt_tokens == 40


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        # The total decides: input + output, or with the cached part beside it.
        ({"input": 1000, "input_cached_tokens": 896, "output": 10, "total": 1010}, (1000, 896)),
        ({"input": 104, "input_cached_tokens": 896, "output": 10, "total": 1010}, (1000, 896)),
        (
            {"input": 104, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 96,
             "output": 10, "total": 1010},
            (1000, 800),
        ),
        (
            {"input": 1000, "input_cache_read": 800, "output": 4, "output_reasoning_tokens": 6,
             "total": 1010},
            (1000, 800),
        ),
        ({"input": 40, "output": 3}, (40, UNKNOWN)),
        ({"input": 40, "input_cached_tokens": 0, "output": 3}, (40, 0)),
        ({"input": 104, "input_cached_tokens": 896}, (1000, 896)),
        ({"input": 1000, "input_cached_tokens": 896}, (UNKNOWN, 896)),
        ({"input": 1000, "input_cached_tokens": 896, "output": 1, "total": 5}, (UNKNOWN, 896)),
        ({"input": 1000, "input_cached_tokens": None, "output": 1, "total": 1001}, (1000, None)),
    ],
)  # fmt: skip
def test_total_says_whether_input_includes_cached_tokens(
    tmp_path: Path, details: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    usage = read_one(tmp_path, usage_details=details).usage

    assert (usage.num_prompt_tokens, usage.num_cached_tokens) == expected


@pytest.mark.parametrize("trace_first", [True, False])
def test_owner_is_found_on_the_trace_in_another_file(tmp_path: Path, trace_first: bool) -> None:
    trace = {"id": "t1", "timestamp": "2026-03-02T08:00:00Z", "name": "n", "user_id": "u",
             "session_id": "s", "input": None}  # fmt: skip
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path, record in zip(paths, [trace, row()] if trace_first else [row(), trace], strict=True):
        path.write_text(json.dumps(record) + "\n")
    read = Read(*paths)
    (request,) = read.requests

    assert (request.identity.user, request.session_id) == ("u", "s")
    assert read.stream.set_aside == {"trace": 1}


def test_only_generations_are_requests(tmp_path: Path) -> None:
    read = read_records(tmp_path, row(), row(type="SPAN"), row(type="EVENT"))

    assert len(read.requests) == 1
    assert read.stream.set_aside == {"other-observation": 2}


def test_prompt_that_was_not_stored_is_said_so(tmp_path: Path) -> None:
    prompt = read_one(tmp_path, input=None).prompt

    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "no-prompt"


def test_observations_within_traces_are_records_of_their_own(tmp_path: Path) -> None:
    trace = {"id": "t1", "timestamp": "2026-03-02T08:00:00Z", "userId": "u", "sessionId": "s",
             "observations": [row(), row(id="o2"), row(id="o3", type="SPAN")]}  # fmt: skip
    page = json.dumps({"data": [trace], "meta": {"page": 1}}, indent=2).encode()
    read = read_bytes(tmp_path, page, name="page.json")

    assert [request.request_id for request in read.requests] == ["o1", "o2"]
    assert read.requests[0].identity.user == "u"
    assert read.stream.num_records == 3
