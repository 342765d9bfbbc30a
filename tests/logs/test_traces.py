"""Traces of block hashes: Dynamo, Bailian, WEKA; lengths only: Azure, BurstGPT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixaudit.core.request import BlockHashes, ChatMessages, LengthOnly, NotReplayable, Request
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs import ReadOptions
from tests.logs.reading import DATA, SHARED, Read, read_bytes, read_records

SAMPLES = DATA / "samples"


def hashes(request: Request) -> BlockHashes:
    assert isinstance(request.prompt, BlockHashes)
    return request.prompt


def dynamo_end(request_id: str, **metrics: Any) -> dict[str, Any]:
    request = {"request_id": request_id, "request_received_ms": 1000, **metrics}
    return {"schema": "dynamo.request.trace.v1", "event_type": "request_end",
            "event_time_unix_ms": 5000, "request": request}  # fmt: skip


def test_dynamo_hashes_are_64_bits_wide() -> None:
    first = Read(SAMPLES / "dynamo.jsonl").requests[0]

    assert hashes(first).hash_ids.tolist() == [18446744073709551000, 9007199254740993, 7]
    assert hashes(first).block_size == 64
    assert (first.usage.num_prompt_tokens, first.usage.num_cached_tokens) == (130, 64)
    assert (first.session_id, first.arrival_s) == ("s", 1772438400.0)
    assert first.identity.model == "harbor"


def test_dynamo_payload_is_joined_to_its_request() -> None:
    read = Read(SAMPLES / "dynamo.jsonl")
    second = read.requests[1]

    assert isinstance(second.prompt, ChatMessages)
    assert second.identity.cache_salt == "x"
    assert second.usage.num_prompt_tokens == 7
    # Ended at 1772438403.0 after 1,000 ms.
    assert second.arrival_s == 1772438402.0
    assert read.stream.set_aside == {"joined-record": 1, "tool-event": 1}
    assert read.stream.num_records == 4


def test_dynamo_trace_with_and_without_sessions_is_noted() -> None:
    assert "agent_context" in Read(SAMPLES / "dynamo.jsonl").stream.files[0].notes[0]


def test_dynamo_hashes_that_dont_fit_the_length_are_a_skip(tmp_path: Path) -> None:
    replay = {"trace_block_size": 64, "input_length": 130, "input_sequence_hashes": [1]}
    read = read_records(tmp_path, dynamo_end("a", replay=replay), dynamo_end("b", input_tokens=9))

    assert read.skips == [(1, "id-count")]
    assert read.requests[0].prompt == LengthOnly(num_prompt_tokens=9)


def test_dynamo_case_of_round_robin() -> None:
    """Case B052 by a plain replay: blocks of 64 tokens, at least one token computed.

    A rank has the full blocks of the prompts that it was sent; its rule of routing is the case's.
    """
    folder = SHARED / "cases" / "B052-round-robin-over-ranks"
    if not folder.exists():
        pytest.skip("the public cases aren't here")
    expected = orjson.loads((folder / "expected.json").read_bytes())["answer"]
    requests = Read(folder / "trace.jsonl").requests

    def ratio(rank_of: list[int]) -> float:
        resident: dict[int, set[tuple[int, ...]]] = {}
        hit = total = 0
        for request, rank in zip(requests, rank_of, strict=True):
            prompt = hashes(request)
            ids = tuple(prompt.hash_ids.tolist())
            full = prompt.num_prompt_tokens // 64
            here = resident.setdefault(rank, set())
            limit = (prompt.num_prompt_tokens - 1) // 64
            num_hit = 0
            while num_hit < limit and ids[: num_hit + 1] in here:
                num_hit += 1
            here.update(ids[: count + 1] for count in range(full))
            hit += 64 * num_hit
            total += prompt.num_prompt_tokens
        return hit / total

    sessions = sorted({str(request.session_id) for request in requests})
    ranks = [place % 4 for place in range(len(requests))]
    by_session = [sessions.index(str(request.session_id)) % 4 for request in requests]

    assert ratio(ranks) == pytest.approx(expected["round_robin_hit_ratio"], abs=0.005)
    assert ratio(by_session) == pytest.approx(expected["session_affinity_hit_ratio"], abs=0.005)
    assert ratio([0] * len(requests)) == pytest.approx(
        expected["single_cache_hit_ratio"], abs=0.005
    )


def test_bailian_blocks_are_16_tokens_and_chats_a_tree(tmp_path: Path) -> None:
    rows = [
        {"chat_id": n, "parent_chat_id": parent, "timestamp": n + 0.5, "input_length": 32,
         "output_length": 1, "type": "text", "turn": 1, "hash_ids": [1, 2]}
        for n, parent in ((5, -1), (6, 5), (7, 6), (8, 5), (9, -1))
    ]  # fmt: skip
    requests = read_records(tmp_path, *rows).requests

    assert {hashes(request).block_size for request in requests} == {16}
    assert [r.session_id for r in requests] == ["5", "5", "5", "5", "9"]
    assert [r.parent_id for r in requests] == [None, "5", "6", "5", None]
    assert requests[0].arrival_s == 5.5


def test_bailian_block_size_can_be_said(tmp_path: Path) -> None:
    row = {"chat_id": 1, "parent_chat_id": -1, "input_length": 64, "hash_ids": [1, 2]}
    data = orjson.dumps(row) + b"\n"
    (request,) = read_bytes(tmp_path, data, ReadOptions(trace_block_size=32)).requests

    assert hashes(request).block_size == 32


def test_weka_ids_are_a_conversations_own() -> None:
    """Both conversations of the sample have the same ids; none of their blocks is shared."""
    requests = Read(SAMPLES / "weka.jsonl").requests
    first = {id_ for r in requests[:3] for id_ in hashes(r).hash_ids.tolist()}
    second = {id_ for r in requests[3:] for id_ in hashes(r).hash_ids.tolist()}

    assert len(first) == len(second) == 5
    assert not first & second


def test_weka_subagent_shares_ids_and_has_a_session_of_its_own() -> None:
    parent, child, last = Read(SAMPLES / "weka.json").requests

    assert hashes(parent).hash_ids[0] == hashes(child).hash_ids[0] == hashes(last).hash_ids[0]
    assert [r.session_id for r in (parent, child, last)] == [
        "trace-1", "trace-1/agent_001", "trace-1"]  # fmt: skip
    assert [r.parent_id for r in (parent, child, last)] == [None, "trace-1-0", "trace-1-0"]
    assert [r.arrival_s for r in (parent, child, last)] == [0.0, 1.6, 4.0]


def test_weka_partial_id_may_be_there_or_not(tmp_path: Path) -> None:
    entries = [{"t": 0, "type": "n", "model": "m", "in": 70, "out": 1, "hash_ids": ids}
               for ids in ([1], [1, 2], [1, 2, 3])]  # fmt: skip
    record = {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": entries}
    one, two, three = read_records(tmp_path, record).requests

    assert len(hashes(one).hash_ids) == 1
    assert len(hashes(two).hash_ids) == 2
    assert isinstance(three.prompt, NotReplayable)
    assert three.prompt.kind == "id-count"


def test_weka_nesting_has_a_limit(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"t": 0, "type": "n", "in": 1, "out": 1}
    for _ in range(40):
        entry = {"t": 0, "type": "subagent", "requests": [entry]}
    record = {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [entry]}

    assert read_records(tmp_path, record).skips == [(1, "too-deep")]


def test_weka_conversation_without_requests_is_set_aside(tmp_path: Path) -> None:
    record = {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": []}
    other = {"id": "y", "block_size": 64, "hash_id_scope": "local",
             "requests": [{"t": 0, "type": "n", "in": 1, "out": 1}]}  # fmt: skip
    read = read_records(tmp_path, record, other)

    assert read.stream.set_aside == {"empty-conversation": 1}
    assert [r.prompt for r in read.requests] == [LengthOnly(num_prompt_tokens=1)]


@pytest.mark.parametrize("name", ["azure.csv", "burstgpt.csv"])
def test_lengths_only_say_so(name: str) -> None:
    read = Read(SAMPLES / name)

    assert all(isinstance(r.prompt, LengthOnly) for r in read.requests)
    assert "no reuse can be computed" in read.stream.files[0].notes[0]


def test_azure_times_have_seven_digits() -> None:
    first = Read(SAMPLES / "azure.csv").requests[0]

    # 2023-11-16 18:17:03 UTC is 1700158623
    assert first.arrival_s == pytest.approx(1700158623.97996, abs=1e-4)
    assert first.usage.num_completion_tokens == 10


def test_burstgpt_failures_have_no_answer_and_sessions_are_named() -> None:
    first, failed = Read(SAMPLES / "burstgpt.csv").requests

    assert (first.session_id, first.identity.model, first.arrival_s) == ("1", "ChatGPT", 5.0)
    assert failed.usage.num_completion_tokens == 0


def test_burstgpt_of_the_first_release_has_no_sessions(tmp_path: Path) -> None:
    data = (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,7,1,8,a\n"
    )
    (request,) = read_bytes(tmp_path, data, name="b.csv").requests

    assert request.session_id is UNKNOWN
    assert request.prompt == LengthOnly(num_prompt_tokens=7)
