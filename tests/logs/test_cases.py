"""Cases of public bug reports whose inputs are requests of these formats, replayed.

Hits are counted by comparing prompts one with another, in whole blocks, with at least one token
computed; the figures are those of the cases' expected.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, Request, TokenIds
from prefixaudit.logs import ReadOptions
from prefixaudit.prompts import Replayer
from tests.logs.reading import SHARED, Read

BLOCK = 16


def folder_of(name: str) -> Path:
    found = sorted((SHARED / "cases").glob(f"{name}-*"))
    if not found:
        pytest.skip("the cases aren't here")
    return found[0]


def expected_of(folder: Path) -> Any:
    return json.loads((folder / "expected.json").read_text())["answer"]


def prompts_of(folder: Path, requests: list[Request]) -> list[list[int]]:
    replayer = Replayer(folder)
    found = []
    for request in requests:
        prompt = replayer.replay(request)
        assert isinstance(prompt, Prompt)
        assert not isinstance(prompt.tokens, BlockHashes)
        found.append(prompt.tokens.tolist())
    return found


def hits_of(prompts: list[list[int]]) -> list[int]:
    hits = []
    for number, prompt in enumerate(prompts):
        longest = 0
        for earlier in prompts[:number]:
            same = 0
            while same < min(len(prompt) - 1, len(earlier)) and prompt[same] == earlier[same]:
                same += 1
            longest = max(longest, same // BLOCK * BLOCK)
        hits.append(longest)
    return hits


def test_begin_token_that_the_text_has_already_is_added_again_for_completions() -> None:
    """Case B011."""
    folder = folder_of("B011")
    expected = expected_of(folder)
    prompts = prompts_of(folder, Read(folder / "requests.jsonl").requests)

    assert [len(prompt) for prompt in prompts] == expected["prompt_tokens"]
    assert hits_of(prompts) == expected["hit_tokens"]
    begin = prompts[0][0]
    leading = [
        next(n for n, token in enumerate([*prompt, None]) if token != begin) for prompt in prompts
    ]
    assert leading == expected["leading_bos"]


@pytest.mark.parametrize(
    ("version", "figure"), [("0.17.1", "hit_tokens"), ("0.33.0", "hit_tokens_with_header_stripped")]
)
def test_billing_header_costs_the_prefix_where_the_server_keeps_it(
    version: str, figure: str
) -> None:
    """Case B013."""
    folder = folder_of("B013")
    expected = expected_of(folder)
    options = ReadOptions(engine="vllm", engine_version=version)
    read = Read(folder / "requests.jsonl", options=options)
    prompts = prompts_of(folder, read.requests)

    assert hits_of(prompts) == expected[figure]
    if figure == "hit_tokens":
        pairs = enumerate(zip(prompts[0], prompts[1], strict=False))
        first = next(n for n, (a, b) in pairs if a != b)
        assert first == expected["first_divergent_token"]


def test_batch_with_tools_in_two_orders() -> None:
    """Case B007."""
    folder = folder_of("B007")
    read = Read(folder / "batch_input.jsonl")
    assert read.stream.files[0].format_name == "openai-batch"
    prompts = prompts_of(folder, read.requests)
    expected = expected_of(folder)["requests"]

    assert [len(prompt) for prompt in prompts] == [item["prompt_tokens"] for item in expected]
    assert hits_of(prompts) == [item["hit_tokens"] for item in expected]


def test_prompts_that_share_nothing_share_nothing() -> None:
    """Case B039: the engine's 32 % are preempted requests that find their own blocks."""
    folder = folder_of("B039")
    prompts = []
    for request in Read(folder / "requests.jsonl").requests:
        assert isinstance(request.prompt, TokenIds)
        prompts.append(tuple(request.prompt.token_ids[:BLOCK].tolist()))

    assert len(set(prompts)) == len(prompts)
    assert expected_of(folder)["cross_request_hit_tokens"] == 0
