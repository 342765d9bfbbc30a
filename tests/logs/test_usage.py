"""Usage apart from requests: counted by each source's own rule, joined by id where it can be."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import DATA, SHARED, Read, read_records

BODY = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


def test_usage_is_joined_across_files(tmp_path: Path) -> None:
    asked = tmp_path / "requests.jsonl"
    asked.write_bytes(orjson.dumps({"request_id": "r1", "body": BODY}) + b"\n")
    counted = tmp_path / "usage.jsonl"
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}
    counted.write_bytes(orjson.dumps({"request_id": "r1", "usage": usage}) + b"\n")
    for paths in ((asked, counted), (counted, asked)):
        read = Read(*paths)
        (request,) = read.requests

        assert isinstance(request.prompt, ChatMessages)
        assert request.usage.num_cached_tokens == 32
        assert read.stream.set_aside == {"joined-answer": 1}


def test_answers_on_lines_of_their_own_are_joined_in_one_file(tmp_path: Path) -> None:
    read = read_records(
        tmp_path,
        {"request_id": "r1", "body": BODY},
        {"request_id": "r2", "body": BODY},
        {"request_id": "r2", "response": {"usage": {"prompt_tokens": 2}}},
        {"request_id": "r1", "response": {"usage": {"prompt_tokens": 1}}},
    )

    assert [r.usage.num_prompt_tokens for r in read.requests] == [1, 2]
    assert read.stream.num_records == 4


def test_usage_of_a_request_is_not_overwritten(tmp_path: Path) -> None:
    read = read_records(
        tmp_path,
        {"request_id": "r1", "body": BODY, "response": {"usage": {"prompt_tokens": 7}}},
        {"request_id": "r1", "response": {"usage": {"prompt_tokens": 8}}},
    )

    assert [r.usage.num_prompt_tokens for r in read.requests] == [7]


def test_usage_without_a_request_is_all_that_is_known(tmp_path: Path) -> None:
    read = read_records(tmp_path, {"usage": {"prompt_tokens": 7, "prompt_tokens_details": None}})
    (request,) = read.requests

    assert isinstance(request.prompt, NotReplayable)
    assert (request.usage.num_prompt_tokens, request.usage.num_cached_tokens) == (7, None)


# Case B043: figures of its expected.json, for the records that `usage.jsonl` holds.
NORMALISED = {
    "openai": (1000, 896), "anthropic": (1000, 800), "openai-responses": (1000, 896),
    "litellm-anthropic": (1000, 800), "sglang-meta": (1000, 999),
}  # fmt: skip


def test_cached_tokens_inside_and_outside_the_prompt_count() -> None:
    read = Read(DATA / "B043-usage.jsonl")

    assert {
        request.record["source"]: (request.usage.num_prompt_tokens, request.usage.num_cached_tokens)
        for request in read.requests
    } == NORMALISED


def test_cached_tokens_of_a_span_are_inside_and_integers_may_be_text() -> None:
    (request,) = Read(DATA / "B043-span.otlp.json").requests

    assert request.usage.num_prompt_tokens == 1000
    assert request.usage.num_cached_tokens == 800


def test_null_details_are_not_zero_and_missing_usage_is_unknown() -> None:
    """Case B038."""
    path = SHARED / "cases" / "B038-details-null-is-not-zero" / "requests.jsonl"
    if not path.exists():
        pytest.skip("the cases aren't here")
    usages = [request.usage for request in Read(path).requests]

    assert [usage.num_cached_tokens for usage in usages] == [96, None, 64, None, 80, UNKNOWN]
    assert usages[5].num_prompt_tokens is UNKNOWN
    known = [usage for usage in usages if isinstance(usage.num_prompt_tokens, int)]
    assert sum(usage.num_prompt_tokens for usage in known) == 390  # type: ignore[misc]
    reported = [count for u in usages if isinstance(count := u.num_cached_tokens, int)]
    assert sum(reported) == 240
