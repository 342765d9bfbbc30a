"""Helicone rows: bodies, counts of each provider, its own cache of responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import NO_USAGE, ChatMessages, NotReplayable, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import DATA, Read, read_bytes, read_records

BODY = {"model": "m", "messages": [{"role": "user", "content": "Berths?"}]}


def row(**fields: Any) -> dict[str, Any]:
    return {"request_id": "h", "request_created_at": "2026-03-02T08:00:00.000Z", "model": "m",
            "provider": "OPENAI", "status": 200, "properties": {}, "request_body": BODY,
            **fields}  # fmt: skip


def read_one(folder: Path, **fields: Any) -> Request:
    (request,) = read_records(folder, row(**fields)).requests
    return request


def kind_of(request: Request) -> str | None:
    return request.prompt.kind if isinstance(request.prompt, NotReplayable) else None


@pytest.mark.parametrize("body", [BODY, json.dumps(BODY)])
def test_row_is_carried(tmp_path: Path, body: Any) -> None:
    request = read_one(
        tmp_path, user_id="u", properties={"Helicone-Session-Id": "s"}, request_body=body
    )

    assert isinstance(request.prompt, ChatMessages)
    assert (request.identity.user, request.session_id) == ("u", "s")
    assert request.arrival_s == 1772438400.0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt_tokens": 1000, "prompt_cache_read_tokens": 800}, (1000, 800)),
        ({"prompt_tokens": 104, "prompt_cache_read_tokens": 800, "prompt_cache_write_tokens": 96,
          "provider": "ANTHROPIC"}, (1000, 800)),
        ({"prompt_tokens": 104, "prompt_cache_read_tokens": 896}, (1000, 896)),
        ({"prompt_tokens": 40, "prompt_cache_read_tokens": None}, (40, None)),
        ({"prompt_tokens": "40"}, (40, UNKNOWN)),
        ({"prompt_tokens": 1, "response_body": {"usage": {"prompt_tokens": 40,
          "prompt_tokens_details": {"cached_tokens": 32}}}}, (40, 32)),
    ],
)  # fmt: skip
def test_counts_are_those_of_the_answer_or_of_the_providers_rule(
    tmp_path: Path, fields: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    usage = read_one(tmp_path, **fields).usage

    assert (usage.num_prompt_tokens, usage.num_cached_tokens) == expected


def test_answer_of_its_own_cache_reached_no_engine(tmp_path: Path) -> None:
    request = read_one(tmp_path, cache_reference_id="9f6c", prompt_tokens=40)

    assert (kind_of(request), request.usage) == ("response-cache", NO_USAGE)


@pytest.mark.parametrize("reference", [None, "", "00000000-0000-0000-0000-000000000000"])
def test_no_reference_is_no_answer_of_the_cache(tmp_path: Path, reference: Any) -> None:
    assert kind_of(read_one(tmp_path, cache_enabled=True, cache_reference_id=reference)) is None


def test_row_without_its_body_keeps_its_counts(tmp_path: Path) -> None:
    request = read_one(tmp_path, request_body=None, prompt_tokens=40)

    assert (kind_of(request), request.usage.num_prompt_tokens) == ("no-prompt", 40)


def test_json_lines_arrays_and_tables_say_the_same() -> None:
    said = []
    for name in ("helicone.jsonl", "helicone.array.json", "helicone.rows.csv"):
        requests = Read(DATA / "samples" / name).requests
        said.append([(r.request_id, r.prompt, r.usage, r.session_id) for r in requests])

    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 3


def test_row_of_a_table_with_too_few_fields_is_skipped(tmp_path: Path) -> None:
    data = (DATA / "samples" / "helicone.rows.csv").read_bytes() + b"h-9,2026\n"
    read = read_bytes(tmp_path, data, name="rows.csv")

    assert len(read.requests) == 3
    assert [line for line, _ in read.skips] == [5]
