"""ShareGPT, LMSYS-Chat-1M and WildChat: a request for each answer of a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import Read, read_records


def sharegpt(*turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return {"id": "c", "conversations": [{"from": w, "value": v} for w, v in turns], **fields}


def prompts(read: Read) -> list[list[tuple[str, str]]]:
    return [
        [(message["role"], message["content"]) for message in request.prompt.messages]
        for request in read.requests
        if isinstance(request.prompt, ChatMessages)
    ]


def test_each_answer_has_a_prompt_of_all_before_it(tmp_path: Path) -> None:
    read = read_records(
        tmp_path, sharegpt(("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d"))
    )

    assert prompts(read) == [
        [("user", "a")],
        [("user", "a"), ("assistant", "b"), ("user", "c")],
    ]
    assert [request.request_id for request in read.requests] == ["c#0", "c#1"]
    assert [request.parent_id for request in read.requests] == [None, "c#0"]
    assert {request.session_id for request in read.requests} == {"c"}
    assert read.requests[1].generated == RawText(text="d", add_special_tokens=False)
    assert read.stream.num_records == 1


def test_first_turn_of_the_model_is_history_only(tmp_path: Path) -> None:
    read = read_records(tmp_path, sharegpt(("gpt", "(continued)"), ("human", "a"), ("gpt", "b")))

    assert prompts(read) == [[("assistant", "(continued)"), ("user", "a")]]


def test_last_question_without_an_answer_is_a_request(tmp_path: Path) -> None:
    read = read_records(tmp_path, sharegpt(("system", "s"), ("human", "<b>a</b>")))

    assert prompts(read) == [[("system", "s"), ("user", "<b>a</b>")]]
    assert read.requests[0].generated is UNKNOWN


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (sharegpt(("gpt", "a")), "no-prompt"),
        (sharegpt(("robot", "a")), "bad-field"),
        ({"id": "c", "conversations": []}, "no-prompt"),
        ({"id": "c", "conversations": [{"from": "human", "value": 7}]}, "bad-field"),
    ],
)
def test_conversation_without_a_prompt_is_one_skip(tmp_path: Path, record: Any, kind: str) -> None:
    read = read_records(tmp_path, record, log_format="sharegpt")

    assert read.skips == [(1, kind)]


def chat(*turns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "conversation": list(turns), **fields}


USER = {"role": "user", "content": "a"}
ANSWER = {"role": "assistant", "content": "b"}


def test_lmsys_conversation_knows_its_model(tmp_path: Path) -> None:
    read = read_records(tmp_path, chat(USER, ANSWER, conversation_id="c", redacted=False))

    assert read.stream.files[0].format_name == "lmsys"
    assert prompts(read) == [[("user", "a")]]
    assert read.requests[0].identity.model == "m"


def test_redacted_conversations_are_not_replayed(tmp_path: Path) -> None:
    lmsys = read_records(tmp_path, chat(USER, ANSWER, conversation_id="c", redacted=True))
    redacted_turn = {**USER, "redacted": True}
    wildchat = read_records(tmp_path, chat(redacted_turn, ANSWER, conversation_hash="c"))
    for read in (lmsys, wildchat):
        (request,) = read.requests

        assert isinstance(request.prompt, NotReplayable)
        assert request.prompt.kind == "redacted"
        assert request.generated is UNKNOWN


def test_wildchat_times_are_those_of_the_answers(tmp_path: Path) -> None:
    answers = [{**ANSWER, "timestamp": f"2026-03-02T08:00:0{n}+00:00"} for n in range(2)]
    record = chat(USER, answers[0], USER, answers[1], USER, conversation_hash="c",
                  hashed_ip="22fd", timestamp="2026-03-02T08:00:09+00:00")  # fmt: skip
    read = read_records(tmp_path, record)

    assert read.stream.files[0].format_name == "wildchat"
    assert [request.arrival_s for request in read.requests] == [
        1772438400.0, 1772438401.0, 1772438409.0,
    ]  # fmt: skip
    assert read.requests[0].identity.user == "22fd"
