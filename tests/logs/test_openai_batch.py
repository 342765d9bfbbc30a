"""Batch files: answers joined to requests by custom_id, whatever the order and the files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import orjson

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, Request
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import DATA, Read

USER = {"role": "user", "content": "Which berth?"}


def asked(name: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "m", "messages": [USER], **body}}  # fmt: skip


def answered(name: str, prompt_tokens: int, text: str = "Four.") -> dict[str, Any]:
    body = {"id": f"chatcmpl-{name}", "created": 1772440000, "choices": [
        {"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2}}  # fmt: skip
    return {"id": "batch_req_1", "custom_id": name, "error": None,
            "response": {"status_code": 200, "request_id": "q", "body": body}}  # fmt: skip


def read(folder: Path, *files: list[Any]) -> Read:
    paths = []
    for number, records in enumerate(files):
        paths.append(folder / f"{number}.jsonl")
        paths[-1].write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return Read(*paths)


def by_id(read: Read) -> dict[str, Request]:
    return {request.request_id: request for request in read.requests}


def test_output_is_joined_to_the_input_in_any_order(tmp_path: Path) -> None:
    asks = [asked("a"), asked("b"), asked("c")]
    answers = [answered("c", 30), answered("a", 10)]
    for files in ([asks, answers], [answers, asks], [asks + answers], [answers + asks]):
        got = read(tmp_path, *files)

        assert [r.request_id for r in got.requests] == ["a", "b", "c"]
        assert [r.usage.num_prompt_tokens for r in got.requests] == [10, UNKNOWN, 30]
        assert all(isinstance(r.prompt, ChatMessages) for r in got.requests)
        assert got.requests[0].generated == RawText(text="Four.", add_special_tokens=False)
        assert got.stream.num_records == 5
        assert got.stream.set_aside == {"joined-answer": 2}


def test_times_of_answers_are_not_those_of_arrivals(tmp_path: Path) -> None:
    got = read(tmp_path, [asked("a"), answered("a", 10)])

    assert got.requests[0].arrival_s is UNKNOWN


def test_answer_without_a_request_keeps_its_usage(tmp_path: Path) -> None:
    got = read(tmp_path, [asked("a")], [answered("z", 9)])

    prompt = by_id(got)["z"].prompt
    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "answer-only"
    assert by_id(got)["z"].usage.num_prompt_tokens == 9
    assert got.stream.set_aside == {}


def test_failed_requests_were_not_computed(tmp_path: Path) -> None:
    expired = {"id": "x", "custom_id": "a", "response": None, "error": {"code": "batch_expired"}}
    invalid = {"id": "x", "custom_id": "b", "error": None,
               "response": {"status_code": 400, "body": {"error": {"message": "no"}}}}  # fmt: skip
    broken = {"id": "x", "custom_id": "c", "error": None,
              "response": {"status_code": 500, "body": {"error": {"message": "no"}}}}  # fmt: skip
    got = read(tmp_path, [asked("a"), asked("b"), asked("c")], [expired, invalid, broken])

    kinds = [getattr(request.prompt, "kind", None) for request in got.requests]
    assert kinds == ["refused", "refused", None]


def test_retry_that_worked_wins_over_its_failure(tmp_path: Path) -> None:
    failed = {"id": "x", "custom_id": "a", "response": None, "error": {"code": "e"}}
    got = read(tmp_path, [asked("a")], [failed, answered("a", 10)])

    assert [r.usage.num_prompt_tokens for r in got.requests] == [10]


def test_answers_that_disagree_are_given_to_nobody(tmp_path: Path) -> None:
    """Two batches with the same custom ids: nobody knows which answer is whose."""
    got = read(tmp_path, [asked("a")], [answered("a", 10)], [answered("a", 20)])

    assert [r.usage.num_prompt_tokens for r in got.requests] == [UNKNOWN, 10, 20]


def test_one_answer_is_given_to_one_request(tmp_path: Path) -> None:
    got = read(tmp_path, [asked("a")], [asked("a")], [answered("a", 10)])

    assert [r.usage.num_prompt_tokens for r in got.requests] == [10, UNKNOWN]


def test_usage_of_several_prompts_is_nobodys_own(tmp_path: Path) -> None:
    several = {"custom_id": "a", "method": "POST", "url": "/v1/completions",
               "body": {"model": "m", "prompt": ["x", "y"]}}  # fmt: skip
    got = read(tmp_path, [several, answered("a", 10)])

    assert [r.request_id for r in got.requests] == ["a-0", "a-1"]
    assert [r.usage.num_prompt_tokens for r in got.requests] == [UNKNOWN, UNKNOWN]
    assert got.stream.set_aside == {"joined-answer": 1}


def test_pipe_is_joined_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = b"".join(orjson.dumps(line) + b"\n" for line in (asked("a"), answered("a", 10)))
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    got = Read(pipe)
    writer.join()

    assert [r.usage.num_prompt_tokens for r in got.requests] == [10]
    assert got.stream.num_records == 2


def test_sample_with_both_in_one_file() -> None:
    got = by_id(Read(DATA / "samples" / "openai_batch.jsonl"))

    assert list(got) == ["job-0", "job-1", "job-2", "job-7"]
    assert got["job-1"].usage.num_cached_tokens == 48
    assert got["job-2"].prompt == RawText(text="Berth")
