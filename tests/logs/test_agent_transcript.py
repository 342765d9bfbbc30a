"""Agent transcripts: one call on several lines is one request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefixaudit.core.request import NotReplayable
from tests.logs.reading import DATA, Read, read_records


def line(message_id: str | None, output_tokens: int, **fields: Any) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": "m", "content": [{"type": "text"}],
               "usage": {"input_tokens": 3, "cache_read_input_tokens": 7,
                         "output_tokens": output_tokens}}  # fmt: skip
    return {"type": "assistant", "uuid": "u", "sessionId": "s", "message": message, **fields}


def outputs(read: Read) -> list[Any]:
    return [request.usage.num_completion_tokens for request in read.requests]


def test_calls_and_totals_are_those_of_the_last_lines() -> None:
    """Case B044: three calls, 5067 prompt, 5000 cached and 156 output tokens."""
    read = Read(DATA / "B044-transcript.jsonl")
    usages = [request.usage for request in read.requests]

    assert len(read.requests) == 3
    assert [u.num_prompt_tokens for u in usages] == [1053, 2007, 2007]
    assert [u.num_cached_tokens for u in usages] == [1000, 2000, 2000]
    assert [u.num_completion_tokens for u in usages] == [95, 30, 31]
    assert read.lines == [1, 4, 6]
    assert read.stream.set_aside == {"same-call": 3}
    assert read.stream.num_records == 6


def test_prompts_are_not_replayed_without_what_the_agent_sends_in_front(tmp_path: Path) -> None:
    (request,) = read_records(tmp_path, line("m", 1)).requests

    assert isinstance(request.prompt, NotReplayable)
    assert request.prompt.kind == "no-system-prompt"


def test_lines_of_a_call_may_have_others_between_them(tmp_path: Path) -> None:
    user = {"type": "user", "uuid": "v", "sessionId": "s", "message": {"content": "x"}}
    read = read_records(tmp_path, line("m", 1), user, line("n", 5), line("m", 2))

    assert outputs(read) == [2, 5]
    assert read.stream.set_aside == {"same-call": 1, "turn": 1}


def test_request_id_that_comes_late_is_of_the_same_call(tmp_path: Path) -> None:
    read = read_records(tmp_path, line("m", 1), line("m", 2, requestId="q1"), line("m", 3))

    assert outputs(read) == [3]


def test_lines_without_a_message_id_are_calls_of_their_own(tmp_path: Path) -> None:
    assert outputs(read_records(tmp_path, line(None, 1), line("", 2))) == [1, 2]


def test_resumed_session_that_copies_lines_counts_them_once(tmp_path: Path) -> None:
    old, new = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    old.write_text(json.dumps(line("m", 1)) + "\n")
    new.write_text(json.dumps(line("m", 1)) + "\n" + json.dumps(line("n", 2)) + "\n")
    read = Read(old, new)

    assert outputs(read) == [1, 2]
    assert read.stream.set_aside == {"repeated": 1}


def test_words_of_the_client_itself_are_no_call(tmp_path: Path) -> None:
    own = line("m", 0)
    own["message"]["model"] = "<synthetic>"
    read = read_records(tmp_path, line("n", 1), own)

    assert outputs(read) == [1]
    assert read.stream.set_aside == {"note": 1}
