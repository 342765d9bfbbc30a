"""LiteLLM payloads and spend logs: keys, the proxy's own cache, cut and redacted prompts."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import NO_USAGE, ChatMessages, NotReplayable, RawText, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import read_bytes, read_records

USER = {"role": "user", "content": "Which berth?"}
TOOL = {"type": "function", "function": {"name": "look"}}


def payload(**fields: Any) -> dict[str, Any]:
    return {"id": "c1", "call_type": "acompletion", "model": "hosted_vllm/m", "model_group": "g",
            "custom_llm_provider": "hosted_vllm", "startTime": 1772438400.25, "messages": [USER],
            "model_parameters": {}, "metadata": {}, "hidden_params": {}, **fields}  # fmt: skip


def spend(**fields: Any) -> dict[str, Any]:
    return {"request_id": "c1", "call_type": "acompletion", "api_key": "88dc", "spend": 0.1,
            "startTime": "2026-03-02T08:00:00.250000", "model": "m", "metadata": "{}",
            "messages": {}, "response": {}, **fields}  # fmt: skip


def read_one(folder: Path, record: Any) -> Request:
    read = read_records(folder, record)
    assert read.stream.files[0].format_name == "litellm"
    assert read.skipped == []
    (request,) = read.requests
    return request


def kind_of(request: Request) -> str | None:
    return request.prompt.kind if isinstance(request.prompt, NotReplayable) else None


def test_payload_is_carried(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 3,
             "prompt_tokens_details": {"cached_tokens": 32}}  # fmt: skip
    request = read_one(
        tmp_path,
        payload(
            response={"choices": [{"message": {"role": "assistant", "content": "Four."}}],
                      "usage": usage},
            model_parameters={"tools": [TOOL], "extra_body": {"cache_salt": "s"}},
            metadata={"user_api_key_hash": "88dc", "user_api_key_team_id": "team",
                      "user_api_key_user_id": "ops"},
            end_user="u",
        ),
    )  # fmt: skip

    assert isinstance(request.prompt, ChatMessages)
    assert request.prompt.tools == [TOOL]
    assert (request.identity.model, request.identity.tenant) == ("m", "team")
    assert (request.identity.user, request.identity.cache_salt) == ("u", "s")
    assert request.usage.num_cached_tokens == 32
    assert request.arrival_s == 1772438400.25
    assert request.generated == RawText(text="Four.", add_special_tokens=False)


def test_spend_log_row_takes_its_prompt_from_the_proxys_request(tmp_path: Path) -> None:
    request = read_one(tmp_path, spend(proxy_server_request={"model": "g", "messages": [USER]}))

    assert isinstance(request.prompt, ChatMessages)
    assert (request.identity.model, request.identity.tenant) == ("m", "88dc")
    assert request.arrival_s == 1772438400.25


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (spend(), "no-prompt"),
        (payload(messages=None), "no-prompt"),
        (payload(messages="redacted-by-litellm"), "redacted"),
        (payload(messages=[{"role": "user", "content": "redacted-by-litellm"}]), "redacted"),
        (payload(messages=[{"role": "user", "content":
            "a... (litellm_truncated 9000 chars) ...b"}]), "cut-prompt"),
        (spend(messages='[{"role": "user", "content": "a'), "cut-prompt"),
        (spend(proxy_server_request={"messages": [{"role": "user", "content":
            "a... (litellm_truncated skipped 500 chars) ...b"}]}), "cut-prompt"),
        (payload(status="failure", error_information={"error_code": "400"}), "refused"),
    ],
)  # fmt: skip
def test_prompt_that_is_not_whole_is_not_replayed(tmp_path: Path, record: Any, kind: str) -> None:
    assert kind_of(read_one(tmp_path, record)) == kind


@pytest.mark.parametrize("hit", [True, "True"])
def test_answer_of_the_proxys_cache_reached_no_engine(tmp_path: Path, hit: Any) -> None:
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}
    request = read_one(tmp_path, payload(cache_hit=hit, response={"usage": usage}))

    assert kind_of(request) == "response-cache"
    assert request.usage == NO_USAGE


@pytest.mark.parametrize("hit", [False, "False", None, "None", ""])
def test_other_values_of_cache_hit_are_no_hit(tmp_path: Path, hit: Any) -> None:
    assert kind_of(read_one(tmp_path, payload(cache_hit=hit))) is None


def test_failed_call_that_was_computed_is_replayed(tmp_path: Path) -> None:
    record = payload(status="failure", error_information={"error_code": "500"})

    assert kind_of(read_one(tmp_path, record)) is None


def test_count_of_zero_without_an_answer_is_unknown(tmp_path: Path) -> None:
    assert read_one(tmp_path, payload(prompt_tokens=0)).usage.num_prompt_tokens is UNKNOWN


def test_usage_object_of_the_metadata_is_taken(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 16}}
    request = read_one(tmp_path, spend(metadata=json.dumps({"usage_object": usage})))

    assert request.usage.num_cached_tokens == 16


def test_key_that_was_logged_bare_is_hashed(tmp_path: Path) -> None:
    request = read_one(tmp_path, spend(api_key="sk-secret"))

    # as LiteLLM's hash_token does
    assert request.identity.tenant == hashlib.sha256(b"sk-secret").hexdigest()


def test_spend_log_as_a_table_is_read(tmp_path: Path) -> None:
    body = json.dumps({"model": "g", "messages": [USER]})
    record = spend(proxy_server_request=body, prompt_tokens="40", cache_hit="False")
    rows = io.StringIO()
    writer = csv.DictWriter(rows, list(record))
    writer.writeheader()
    writer.writerow({name: value or "{}" for name, value in record.items()})
    read = read_bytes(tmp_path, rows.getvalue().encode(), name="spend.csv")
    (request,) = read.requests

    assert isinstance(request.prompt, ChatMessages)
    assert request.usage.num_prompt_tokens == 40
    assert request.identity.tenant == "88dc"


def test_calls_of_other_kinds_are_set_aside(tmp_path: Path) -> None:
    read = read_records(tmp_path, payload(), payload(call_type="aembedding", messages="a"))

    assert len(read.requests) == 1
    assert read.stream.set_aside == {"other-call": 1}
