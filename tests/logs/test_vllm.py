"""vLLM's text logs of all releases: what their lines become, and what they must not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import ReadOptions
from tests.logs.reading import DATA, SHARED, Read, read_bytes

PARAMS = "SamplingParams(n=1, stop=['a, lora_request: None'], prompt_logprobs=None, max_tokens=4)"
SAMPLES = DATA / "samples"


def old_line(
    request_id: str,
    prompt: str | None,
    *,
    time: str = "11-29 14:20:01",
    params: str = PARAMS,
    ids: str = "None",
    lora: str = "None",
) -> bytes:
    """A line as vLLM 0.9.2 writes it."""
    return (
        f"INFO {time} [logger.py:43] Received request {request_id}: prompt: {prompt!r}, "
        f"params: {params}, prompt_token_ids: {ids}, prompt_embeds shape: None, "
        f"lora_request: {lora}, prompt_adapter_request: None.\n"
    ).encode()


def debug_lines(request_id: str, prompt: str | None, ids: str = "None") -> bytes:
    """Lines as vLLM 0.14 writes them at DEBUG."""
    front = "(APIServer pid=9) "
    return (
        f"{front}DEBUG 11-29 14:20:01 [entrypoints/logger.py:40] Request {request_id} details: "
        f"prompt: {prompt!r}, prompt_token_ids: {ids}, prompt_embeds shape: None.\n"
        f"{front}INFO 11-29 14:20:01 [logger.py:52] Received request {request_id}: "
        f"params: {PARAMS}, lora_request: None.\n"
    ).encode()


def test_lines_of_all_releases_are_read() -> None:
    read = Read(SAMPLES / "vllm.log")
    first, second, third = read.requests

    assert isinstance(first.prompt, RawText)
    assert first.prompt.text.endswith("Berth for the Anna?<|im_end|>\n<|im_start|>assistant\n")
    assert not first.prompt.add_special_tokens
    assert isinstance(second.prompt, TokenIds)
    assert second.prompt.token_ids.tolist() == [128000, 46864, 330, 275]
    assert isinstance(third.prompt, RawText)
    assert "Zwölf Meter Tiefgang 🚢?" in third.prompt.text
    assert read.skipped == []


def test_adapter_is_named_with_path_and_load() -> None:
    first, second, _ = Read(SAMPLES / "vllm.log").requests

    assert (first.identity.lora_name, first.identity.lora_path) == (None, None)
    assert second.identity.lora_name == "legal"
    assert second.identity.lora_path == "/adapters/legal-v1"
    assert second.identity.lora_revision == "int_id=1"
    assert second.identity.cache_salt is UNKNOWN


@pytest.mark.parametrize(
    "prompt",
    [
        "a, params: SamplingParams(fake), prompt_token_ids: [1], lora_request: None.",
        "it's \"both\" \\ and\n\r\t\0\x1b[0m \u2028 end'",
        "Received request x: prompt: 'y'",
        "",
    ],
)
def test_prompt_is_a_python_literal_whatever_stands_in_it(tmp_path: Path, prompt: str) -> None:
    (request,) = read_bytes(tmp_path, old_line("cmpl-1-0", prompt)).requests

    assert request.prompt == RawText(text=prompt, add_special_tokens=True)


def test_lone_surrogate_is_a_skip(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, old_line("cmpl-1-0", "a\udc80") + old_line("cmpl-2-0", "b"))

    assert read.skips == [(1, "lone-surrogate")]
    assert read.lines == [2]


def test_ids_are_preferred_to_the_text(tmp_path: Path) -> None:
    (request,) = read_bytes(tmp_path, old_line("cmpl-1-0", "Hello there", ids="[5, 6]")).requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.token_ids.tolist() == [5, 6]


def test_details_body_and_answer_are_joined_to_their_request() -> None:
    first, second, third = Read(SAMPLES / "vllm.debug.log").requests

    assert [r.request_id for r in (first, second, third)] == [
        "chatcmpl-4d", "chatcmpl-5e", "cmpl-6f-0"]  # fmt: skip
    assert isinstance(first.prompt, TokenIds)
    assert first.identity.cache_salt == "acme"
    assert first.identity.model == "harbor-8b"
    assert isinstance(first.generated, TokenIds)
    assert first.generated.token_ids.tolist() == [11, 12, 13]


def test_request_without_details_has_no_prompt() -> None:
    request = Read(SAMPLES / "vllm.debug.log").requests[1]

    assert isinstance(request.prompt, NotReplayable)
    assert request.prompt.kind == "no-prompt-logged"
    assert request.identity.lora_name == "legal"


def test_limit_of_the_servers_arguments_tells_cut_prompts() -> None:
    request = Read(SAMPLES / "vllm.debug.log").requests[2]

    assert isinstance(request.prompt, NotReplayable)
    assert request.prompt.kind == "cut-prompt"


def test_body_alone_is_the_prompt(tmp_path: Path) -> None:
    """With VLLM_REQUEST_BODY_LOG_LEVEL=INFO a server at INFO logs bodies and no details."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    front = "(APIServer pid=9) INFO 11-29 14:20:01 [request_logger.py:77] "
    data = (
        f"{front}Request 7 JSON body: {body}\n"
        f"{front}Received request chatcmpl-7: params: {PARAMS}, lora_request: None.\n"
        f'{front}Request 8 JSON body: {{"model": "m", "mess\n'
        f"{front}Received request chatcmpl-8: params: {PARAMS}, lora_request: None.\n"
    ).encode()
    whole, cut = read_bytes(tmp_path, data).requests

    assert isinstance(whole.prompt, ChatMessages)
    assert whole.identity.cache_salt is None
    assert whole.arrival_s is UNKNOWN
    assert isinstance(cut.prompt, NotReplayable)
    assert cut.prompt.kind == "cut-body"


def test_bodies_under_other_ids_are_joined_by_their_parameters(tmp_path: Path) -> None:
    """With an X-Request-Id header the server's id isn't the body's."""
    front = "(APIServer pid=9) INFO 11-29 14:20:01 [request_logger.py:77] "

    def body(number: int) -> str:
        text = json.dumps({"model": "m", "prompt": f"p{number}", "max_tokens": number})
        return f"{front}Request body{number} JSON body: {text}\n"

    def received(number: int) -> str:
        params = f"SamplingParams(n=1, max_tokens={number})"
        return f"{front}Received request cmpl-h{number}-0: params: {params}, lora_request: None.\n"

    # The first body is of a request that was refused: it never got as far as the engine.
    data = body(5) + body(1) + body(2) + received(2) + received(1)
    read = read_bytes(tmp_path, data.encode())

    assert [(r.request_id, r.prompt) for r in read.requests] == [
        ("body5", RawText(text="p5")),
        ("cmpl-h1-0", RawText(text="p1")),
        ("cmpl-h2-0", RawText(text="p2")),
    ]
    assert "by their order" in "".join(read.stream.files[0].notes)


def test_prompts_of_one_body_are_requests_each(tmp_path: Path) -> None:
    front = "(APIServer pid=9) INFO 11-29 14:20:01 [request_logger.py:77] "
    data = f'{front}Request 7 JSON body: {{"model": "m", "prompt": ["a", "b"]}}\n' + "".join(
        f"{front}Received request cmpl-7-{place}: params: {PARAMS}, lora_request: None.\n"
        for place in (0, 1)
    )
    read = read_bytes(tmp_path, data.encode())

    assert [r.prompt for r in read.requests] == [RawText(text="a"), RawText(text="b")]


def test_message_over_several_lines_repeats_its_prefix(tmp_path: Path) -> None:
    """NewLineFormatter puts CR LF and the prefix between the lines of a message."""
    line = old_line("cmpl-1-0", "Hello", params="SamplingParams(n=1,\n stop=[])").decode()
    prefix = "INFO 11-29 14:20:01 [logger.py:43] "
    whole = line[:-1].replace("\n", "\r\n" + prefix) + "\n"
    read = read_bytes(tmp_path, whole.encode() + old_line("cmpl-2-0", "b"))

    assert [r.request_id for r in read.requests] == ["cmpl-1-0", "cmpl-2-0"]
    assert read.skipped == []


def test_colours_and_fronts_of_log_shippers_are_passed(tmp_path: Path) -> None:
    line = old_line("cmpl-1-0", "b").decode()
    coloured = line.replace("INFO", "\033[32mINFO\033[0m").replace(
        "[logger.py:43]", "\033[90m[logger.py:43]\033[0m"
    )
    data = "2026-11-29T14:20:01.500000000Z stdout F \033[0;36m(APIServer pid=9)\033[0;0m "
    (request,) = read_bytes(tmp_path, (data + coloured).encode()).requests

    assert request.prompt == RawText(text="b")
    # 2026-11-29 14:20:01 UTC is 1795962001 (date -u -d ... +%s)
    assert request.arrival_s == 1795962001.5


def test_year_is_asked_for_and_goes_on_at_new_year(tmp_path: Path) -> None:
    data = old_line("cmpl-1-0", "a", time="12-31 23:59:59") + old_line(
        "cmpl-2-0", "b", time="01-01 00:00:01"
    )
    named = read_bytes(tmp_path, data, ReadOptions(year=2026))
    unnamed = read_bytes(tmp_path, data)

    # 2026-12-31 23:59:59 UTC
    assert [r.arrival_s for r in named.requests] == [1798761599.0, 1798761601.0]
    assert named.stream.files[0].notes == []
    first, second = (r.arrival_s for r in unnamed.requests)
    assert isinstance(first, float)
    assert isinstance(second, float)
    assert second - first == 2
    assert second < 367 * 86400
    assert "no year" in unnamed.stream.files[0].notes[0]


def test_lines_that_cross_back_over_new_year_stay_in_their_year(tmp_path: Path) -> None:
    times = ("12-31 23:59:59", "01-01 00:00:00", "12-31 23:59:59", "01-01 00:00:01")
    data = b"".join(old_line(f"cmpl-{n}-0", "a", time=time) for n, time in enumerate(times))
    read = read_bytes(tmp_path, data, ReadOptions(year=2026))

    start = 1798761599.0
    assert [r.arrival_s for r in read.requests] == [start, start + 1, start, start + 2]


def test_equal_lengths_of_text_and_ids_show_a_cut(tmp_path: Path) -> None:
    ids = str(list(range(100)))
    data = old_line("chatcmpl-1", "x" * 90 + "\n<|assistant|>", ids="[1, 2]") + old_line(
        "chatcmpl-2", "y" * 100, ids=ids
    )
    read = read_bytes(tmp_path, data)

    assert isinstance(read.requests[0].prompt, TokenIds)
    assert isinstance(read.requests[1].prompt, NotReplayable)


def test_tokenizer_of_single_characters_is_no_cut(tmp_path: Path) -> None:
    data = b"".join(old_line(f"cmpl-{n}-0", "x" * n, ids=str([120] * n)) for n in (50, 61, 72, 100))
    read = read_bytes(tmp_path, data)

    assert all(isinstance(r.prompt, TokenIds) for r in read.requests)


def test_longest_chat_of_a_round_length_without_the_usual_end_is_cut(tmp_path: Path) -> None:
    chats = [f"{'q' * n}<|end|><|assistant|>" for n in (10, 20, 30, 40)]
    data = b"".join(old_line(f"chatcmpl-{n}", chat) for n, chat in enumerate(chats))
    data += old_line("chatcmpl-9", "q" * 200)
    read = read_bytes(tmp_path, data)

    assert [isinstance(r.prompt, NotReplayable) for r in read.requests] == [False] * 4 + [True]


def test_whole_chat_of_a_round_length_is_replayed(tmp_path: Path) -> None:
    ending = "<|end|><|assistant|>"
    data = b"".join(
        old_line(f"chatcmpl-{n}", "q" * (n - len(ending)) + ending) for n in (50, 100, 150, 200)
    )
    read = read_bytes(tmp_path, data)

    assert all(isinstance(r.prompt, RawText) for r in read.requests)


def test_ids_shorter_than_the_limit_are_whole(tmp_path: Path) -> None:
    (request,) = read_bytes(
        tmp_path, old_line("cmpl-1-0", "x" * 100, ids="[1, 2, 3]"), ReadOptions(max_log_len=100)
    ).requests

    assert isinstance(request.prompt, TokenIds)


def test_prompt_logprobs_switch_cache_reading_off(tmp_path: Path) -> None:
    params = PARAMS.replace("prompt_logprobs=None", "prompt_logprobs=0").replace("n=1", "n=3")
    (request,) = read_bytes(tmp_path, old_line("cmpl-1-0", "a", params=params)).requests

    assert not request.reads_cache
    assert request.num_samples == 3


def test_cut_line_is_a_skip_and_its_neighbours_survive(tmp_path: Path) -> None:
    line = old_line("cmpl-1-0", "a" * 50)
    read = read_bytes(tmp_path, line[:120] + b"\n" + old_line("cmpl-2-0", "b") + line[:-40])

    assert read.skips == [(1, "cut-line"), (3, "cut-tail")]
    assert read.lines == [2]


@pytest.mark.parametrize("place", [5, 40, 48, 90])
def test_damaged_request_is_never_lost_silently(tmp_path: Path, place: int) -> None:
    line = bytearray(old_line("cmpl-1-0", "a" * 50))
    line[place : place + 2] = b"\xff\xfe"
    read = read_bytes(tmp_path, bytes(line) + old_line("cmpl-2-0", "b"))

    assert len(read.items) == read.stream.num_records == 2
    assert read.requests[-1].prompt == RawText(text="b")


def test_same_id_twice_is_two_requests(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, old_line("cmpl-1-0", "a") + old_line("cmpl-1-0", "b"))

    assert [r.prompt for r in read.requests] == [RawText(text="a"), RawText(text="b")]


def test_interleaved_details_find_their_requests(tmp_path: Path) -> None:
    first = debug_lines("cmpl-1-0", "a").splitlines(keepends=True)
    second = debug_lines("cmpl-2-0", "b").splitlines(keepends=True)
    read = read_bytes(tmp_path, first[0] + second[0] + second[1] + first[1])

    assert [(r.request_id, r.prompt) for r in read.requests] == [
        ("cmpl-1-0", RawText(text="a")),
        ("cmpl-2-0", RawText(text="b")),
    ]


def test_pickle_is_refused_and_never_loaded(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="a pickle file, which is never loaded"):
        read_bytes(tmp_path, pickle.dumps({"requests": [(1, 2)]}, protocol=4))


def test_public_case_of_cut_prompts() -> None:
    """Case B061, its expected answer; the year of the audit isn't assumed."""
    folder = SHARED / "cases" / "B061-prompts-cut-by-the-logger"
    if not folder.exists():
        pytest.skip("the public cases aren't here")
    read = Read(folder / "vllm.log", folder / "sglang.log")
    expected = json.loads((folder / "expected.json").read_bytes())["answer"]
    by_kind: dict[str, list[str]] = {"replayable": [], "cut-prompt": [], "no-prompt-logged": []}
    for request in read.requests:
        prompt = request.prompt
        kind = prompt.kind if isinstance(prompt, NotReplayable) else "replayable"
        by_kind[kind].append(request.request_id)

    assert by_kind["replayable"] == expected["replayable"]
    assert by_kind["cut-prompt"] == expected["truncated"]
    assert by_kind["no-prompt-logged"] == expected["no_prompt"]
    assert read.stream.files[0].num_other_lines == expected["not_requests"]
    cut = {request.request_id: request for request in read.requests}
    assert cut["chatcmpl-2"].identity.lora_name == expected["lora"]["chatcmpl-2"]
    assert cut["sg-1"].usage.num_prompt_tokens == expected["prompt_tokens"]["sg-1"]
    first = cut["chatcmpl-1"].prompt
    assert isinstance(first, RawText)
    third = cut["chatcmpl-3"].prompt
    assert isinstance(third, RawText)
    assert third.text.endswith("and a brace }")
    times = [r.arrival_s for r in read.requests if r.request_id.startswith("chatcmpl")]
    assert all(isinstance(time, float) and time < 366 * 86400 for time in times)
