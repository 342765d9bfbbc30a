"""SGLang's request logs, text and JSON, at all levels; its exported metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import DATA, Read, read_bytes, read_records

SAMPLES = DATA / "samples"


def written(rid: str, text: str, **fields: str) -> str:
    """A GenerateReqInput as the text logger writes it."""
    rest = "".join(f", {name}={value}" for name, value in fields.items())
    return f"GenerateReqInput(rid={rid!r}, text={text}{rest}, stream=False)"


def event(event: str, rid: str | None, obj: object, second: int = 0, **rest: object) -> bytes:
    record = {"timestamp": f"2026-03-02T13:00:0{second}.120001", "event": event, "rid": rid,
              "obj": obj, **rest}  # fmt: skip
    return b"[2026-03-02 13:00:00] " + json.dumps(record).encode() + b"\n"


def test_text_lines_are_joined_by_their_id() -> None:
    first, second, third = Read(SAMPLES / "sglang.log").requests

    assert (first.request_id, second.request_id, third.request_id) == ("a1", "a2", "a3")
    assert first.prompt == RawText(text="Where, text=(?", add_special_tokens=True)
    assert (first.usage.num_prompt_tokens, first.usage.num_cached_tokens) == (4, 3)
    assert isinstance(first.generated, TokenIds)
    assert first.generated.token_ids.tolist() == [5, 6]
    assert first.identity.lora_name is None
    assert isinstance(second.prompt, TokenIds)
    assert (second.identity.lora_path, second.identity.cache_salt) == ("legal", "s")
    assert second.usage.num_cached_tokens is UNKNOWN


def test_elided_text_is_a_cut_prompt() -> None:
    third = Read(SAMPLES / "sglang.log").requests[2]

    assert isinstance(third.prompt, NotReplayable)
    assert third.prompt.kind == "cut-prompt"


def test_json_events_give_time_salt_headers_and_usage() -> None:
    first, cut, level_0 = Read(SAMPLES / "sglang.levels.log").requests

    # 2026-03-02 13:00:00.120001 UTC
    assert first.arrival_s == 1772456400.120001
    assert (first.identity.cache_salt, first.identity.extra_key) == ("s-acme", None)
    assert first.headers == {"x-tenant": "acme"}
    assert first.usage.num_cached_tokens == 2
    assert first.generated == RawText(text="ok", add_special_tokens=False)
    assert isinstance(cut.prompt, NotReplayable)
    # Finished at :02, after half a second.
    assert cut.arrival_s == 1772456401.620001
    assert isinstance(level_0.prompt, NotReplayable)
    assert level_0.prompt.kind == "no-prompt-logged"


def test_adapter_is_unknown_where_the_level_leaves_it_out() -> None:
    level_0 = Read(SAMPLES / "sglang.levels.log").requests[2]

    assert level_0.identity.lora_name is UNKNOWN
    assert level_0.identity.lora_path is UNKNOWN


def test_text_with_three_dots_of_its_own_is_whole(tmp_path: Path) -> None:
    text = "a ... b" * 10
    (request,) = read_bytes(tmp_path, event("request.received", "r", {"text": text})).requests

    assert request.prompt == RawText(text=text)


def test_more_tokens_than_bytes_mean_a_cut(tmp_path: Path) -> None:
    out = {"meta_info": {"prompt_tokens": 900}}
    data = event("request.finished", "r", {"text": "a...b"}, out=out)
    (request,) = read_bytes(tmp_path, data).requests

    assert isinstance(request.prompt, NotReplayable)
    assert request.prompt.kind == "cut-prompt"


def test_chat_body_stands_in_for_a_prompt_that_isnt_logged(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "cache_salt": "s"}
    data = event("request.received.openai", "r", body) + event(
        "request.received", "r", {"rid": "r"}
    )
    read = read_bytes(tmp_path, data)
    (request,) = read.requests

    assert isinstance(request.prompt, ChatMessages)
    assert request.identity.cache_salt == "s"
    assert read.stream.files[0].num_other_lines == 1


def test_batch_of_prompts_is_a_request_each(tmp_path: Path) -> None:
    obj = {"rid": ["a", "b"], "text": ["x", "y"]}
    out = [{"meta_info": {"prompt_tokens": 1, "cached_tokens": 0}},
           {"meta_info": {"prompt_tokens": 2, "cached_tokens": 1}}]  # fmt: skip
    read = read_bytes(tmp_path, event("request.finished", None, obj, out=out))

    assert [(r.request_id, r.usage.num_cached_tokens) for r in read.requests] == [
        ("a", 0),
        ("b", 1),
    ]
    assert read.stream.num_records == 1


def test_batch_in_text_form(tmp_path: Path) -> None:
    line = f"[2026-03-02 13:00:00] Receive: obj={written('a', '[' + repr('x, y') + ', ' + repr('z') + ']')}\n"  # noqa: E501
    read = read_bytes(tmp_path, line.encode())

    assert [r.prompt for r in read.requests] == [RawText(text="x, y"), RawText(text="z")]


def test_log_probabilities_from_the_start_read_no_cache(tmp_path: Path) -> None:
    fields = {"return_logprob": "True", "logprob_start_len": "0"}
    line = f"[2026-03-02 13:00:00] Receive: obj={written('a', repr('x'), **fields)}\n"
    (request,) = read_bytes(tmp_path, line.encode()).requests

    assert not request.reads_cache


def test_cut_lines_are_skips_and_neighbours_survive(tmp_path: Path) -> None:
    text = f"[2026-03-02 13:00:00] Receive: obj={written('a', repr('x' * 40))}\n".encode()
    record = event("request.received", "r", {"text": "hello"})
    read = read_bytes(tmp_path, text[:70] + b"\n" + record + record[:80] + b"\n" + text)

    assert read.skips == [(1, "cut-line"), (3, "cut-line")]
    assert read.lines == [2, 4]


def test_exported_metrics_hold_parameters_as_text(tmp_path: Path) -> None:
    (request,) = Read(SAMPLES / "sglang_metrics.log").requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.token_ids.tolist() == [1, 2, 3]
    assert request.usage.num_cached_tokens == 2
    assert request.identity.cache_salt == "s"
    assert request.identity.lora_path is UNKNOWN
    assert request.arrival_s == 1790000000.5


def test_exported_metrics_of_a_monotonic_clock_have_no_time(tmp_path: Path) -> None:
    record = {"request_parameters": '{"rid": "a", "text": "x", "received_time": 5123.5}',
              "id": "a", "prompt_tokens": 1}  # fmt: skip
    (request,) = read_records(tmp_path, record).requests

    assert request.arrival_s is UNKNOWN


@pytest.mark.parametrize("parameters", ["{", "[1]", "null"])
def test_exported_metrics_with_broken_parameters_are_skips(tmp_path: Path, parameters: str) -> None:
    record = {"request_parameters": parameters, "prompt_tokens": 1}
    read = read_records(tmp_path, record)

    assert len(read.skipped) == 1
    assert read.requests == []
