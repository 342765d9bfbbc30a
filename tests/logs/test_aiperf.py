"""AIPerf's datasets as the requests that a run sends, and its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import (
    BlockHashes,
    ChatMessages,
    LengthOnly,
    NotReplayable,
    RawText,
    Request,
)
from tests.logs.reading import DATA, Read, read_records

SAMPLES = DATA / "samples"


def texts(request: Request) -> list[Any]:
    assert isinstance(request.prompt, ChatMessages)
    return [message["content"] for message in request.prompt.messages]


def test_trace_of_texts_messages_payloads_and_lengths() -> None:
    text, later, messages, payload, length = Read(SAMPLES / "aiperf.jsonl").requests

    assert texts(text) == ["Hello"]
    assert texts(messages) == ["Hi"]
    assert payload.prompt == RawText(text="Hi")
    assert payload.identity.model == "m"
    assert length.prompt == LengthOnly(num_prompt_tokens=10)
    assert isinstance(later.prompt, NotReplayable)


def test_times_are_milliseconds_and_delays_count_from_the_turn_before() -> None:
    requests = Read(SAMPLES / "aiperf.jsonl").requests

    assert [r.arrival_s for r in requests] == [1.0, 1.0505, 2.0005, 3.0, 0.001]


def test_later_texts_of_a_session_hold_answers_that_arent_in_the_file() -> None:
    later = Read(SAMPLES / "aiperf.jsonl").requests[1]

    assert isinstance(later.prompt, NotReplayable)
    assert later.prompt.kind == "server-history"


def test_hash_ids_among_texts_are_blocks_of_512(tmp_path: Path) -> None:
    read = read_records(
        tmp_path, {"text_input": "a", "output_length": 1}, {"input_length": 600, "hash_ids": [1, 2]}
    )

    assert isinstance(read.requests[1].prompt, BlockHashes)
    assert read.requests[1].prompt.block_size == 512


def test_turns_of_several_texts_and_images_are_parts_of_one_message() -> None:
    one, parts, first, second = Read(SAMPLES / "aiperf.turns.jsonl").requests

    assert texts(one) == ["one"]
    assert texts(parts) == [
        [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        ]
    ]
    assert (first.session_id, second.parent_id) == ("s", "s-0")
    assert isinstance(second.prompt, NotReplayable)


def test_inputs_json_is_read_payload_by_payload() -> None:
    read = Read(SAMPLES / "aiperf.inputs.json")

    assert [texts(r) for r in read.requests] == [["a"], ["a", "b", "c"], ["z"]]
    assert [r.session_id for r in read.requests] == ["s1", "s1", "s2"]
    assert read.stream.num_records == 2


def test_forked_session_starts_with_all_that_its_parent_had() -> None:
    root, second, kid, kid_2, lost = Read(SAMPLES / "aiperf.dag.jsonl").requests

    assert texts(root) == ["S", "u1"]
    assert texts(second) == ["S", "u1", "a1", "u2"]
    assert texts(kid) == ["S", "u1", "a1", "u2", "k"]
    assert texts(kid_2) == ["S", "u1", "a1", "u2", "k2"]
    assert kid.parent_id == "root-1"
    # Its own mode is the default: the server's answer stands between its turns.
    assert isinstance(lost.prompt, NotReplayable)


def test_child_of_a_session_with_live_answers_isnt_replayed(tmp_path: Path) -> None:
    message = [{"role": "user", "content": "u"}]
    read = read_records(
        tmp_path,
        {"session_id": "kid", "turns": [{"messages": message}]},
        {"session_id": "root", "turns": [{"messages": message, "forks": ["kid"]}]},
    )

    assert [isinstance(r.prompt, NotReplayable) for r in read.requests] == [True, False]


def test_sessions_that_fork_each_other_end(tmp_path: Path) -> None:
    message = [{"role": "user", "content": "u"}]
    rows = [
        {"session_id": name, "context_mode": "deltas_with_responses",
         "turns": [{"messages": message, "forks": [other]}]}
        for name, other in (("a", "b"), ("b", "a"))
    ]  # fmt: skip
    read = read_records(tmp_path, *rows)

    assert all(isinstance(r.prompt, NotReplayable) for r in read.requests)


@pytest.mark.parametrize("forks", [0.5, True, "kid", [1, {"child": 2}], {"a": 1}])
def test_forks_of_other_types_are_none(tmp_path: Path, forks: Any) -> None:
    turn = {"messages": [{"role": "user", "content": "u"}], "forks": forks}
    (request,) = read_records(tmp_path, {"session_id": "a", "turns": [turn]}).requests

    assert texts(request) == ["u"]


def test_batch_of_contents_is_a_skip(tmp_path: Path) -> None:
    read = read_records(tmp_path, {"texts": [{"name": "t", "contents": ["a", "b"]}]}, {"text": "c"})

    assert read.skips == [(1, "batch")]
    assert read.lines == [2]


def test_result_of_a_run_has_counts_and_no_prompt() -> None:
    (request,) = Read(SAMPLES / "aiperf.result.jsonl").requests

    assert request.prompt == LengthOnly(num_prompt_tokens=100)
    assert request.usage.num_cached_tokens == 64
    assert request.arrival_s == 1772438400.0


def test_plain_traces_stay_mooncakes(tmp_path: Path) -> None:
    rows = [{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}] * 3

    assert read_records(tmp_path, *rows).stream.files[0].format_name == "mooncake"
