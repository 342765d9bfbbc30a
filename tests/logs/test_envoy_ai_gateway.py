"""Envoy AI gateway access logs: keys with dots, values as text, null or a dash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import NotReplayable, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import read_records


def read_one(folder: Path, **fields: Any) -> Request:
    line = {"start_time": "2026-03-02T08:00:00.000Z", "response_code": 200, "x-request-id": "e",
            "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 512, **fields}  # fmt: skip
    (request,) = read_records(folder, line).requests
    return request


def test_line_is_carried_without_a_prompt(tmp_path: Path) -> None:
    request = read_one(tmp_path, **{"session.id": "s"})

    assert isinstance(request.prompt, NotReplayable)
    assert (request.request_id, request.arrival_s) == ("e", 1772438400.0)
    assert (request.identity.model, request.session_id) == ("m", "s")
    assert request.usage.num_cached_tokens is UNKNOWN


@pytest.mark.parametrize(
    ("value", "expected"), [(448, 448), ("448", 448), (0, 0), (None, None), ("-", None)]
)
def test_values_may_be_text_or_missing(tmp_path: Path, value: Any, expected: Any) -> None:
    request = read_one(tmp_path, llm_cached_input_token=value)

    assert request.usage.num_cached_tokens == expected
    assert request.usage.num_prompt_tokens == 512


def test_refused_request_is_told_apart(tmp_path: Path) -> None:
    prompt = read_one(tmp_path, response_code=429, **{"gen_ai.usage.input_tokens": None}).prompt

    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "refused"


def test_dash_is_no_session(tmp_path: Path) -> None:
    assert read_one(tmp_path, **{"session.id": "-"}).session_id is UNKNOWN
