"""Start-up lines of engines, as they were logged."""

from __future__ import annotations

import json

from prefixaudit.cost.engine_log import EngineLog, read_engine_log

from .golden import DATA

VLLM = """\
(EngineCore_0 pid=88) INFO 03-02 07:58:40 [gpu_worker.py:298] Available KV cache memory: 8.11 GiB
(EngineCore_0 pid=88) INFO 03-02 07:58:41 [kv_cache_utils.py:864] GPU KV cache size: 178,880 tokens
(EngineCore_0 pid=88) INFO 03-02 07:58:41 [kv_cache_utils.py:868] Maximum concurrency for 32,768 \
tokens per request: 33.04x
"""
SGLANG = """\
[2025-07-22 08:00:00 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[2025-07-22 08:00:01 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, context_len=40960
"""


def test_vllm_says_tokens_memory_and_concurrency() -> None:
    assert read_engine_log(VLLM.splitlines()) == EngineLog(
        num_tokens=178_880, kv_bytes=int(8.11 * 2**30), concurrency=(32_768, 33.04)
    )


def test_sglang_says_tokens() -> None:
    assert read_engine_log(SGLANG.splitlines()).num_tokens == 367_404


def test_smallest_rank_counts() -> None:
    lines = ["# GPU blocks: 2,000, # CPU blocks: 0", "# GPU blocks: 1990, # CPU blocks: 0"]

    assert read_engine_log(lines).num_blocks == 1990


def test_override_is_read_where_it_is_set() -> None:
    line = "Overriding num_gpu_blocks=25600 with num_gpu_blocks_override=100"

    assert read_engine_log([line]).num_blocks == 100
    assert read_engine_log(["num_gpu_blocks_override=None"]).is_empty


def test_other_lines_say_nothing() -> None:
    assert read_engine_log(["INFO loading weights", "x" * 10_000_000, "\0\0"]).is_empty


def test_case_b047_the_block_is_the_one_that_the_engine_set() -> None:
    """Hits by the longest common prefix with an earlier prompt, in whole blocks of each size."""
    folder = DATA / "cases" / "B047-hybrid-block-of-528"
    expected = json.loads((folder / "expected.json").read_text())["answer"]
    prompts = [
        json.loads(line)["body"]["prompt"]
        for line in (folder / "requests.jsonl").read_text().splitlines()
    ]

    block_size = read_engine_log((folder / "vllm.log").read_text().splitlines()).block_size

    assert block_size == 528
    assert _hits(prompts, block_size) == expected["hit_tokens"]
    assert _hits(prompts, 16) == expected["hit_tokens_if_block_were_16"]
    assert block_size + 1 == expected["smallest_prefix_that_can_hit"]


def _hits(prompts: list[list[int]], block_size: int) -> list[int]:
    hits = []
    for index, prompt in enumerate(prompts):
        longest = 0
        for earlier in prompts[:index]:
            common = 0
            for left, right in zip(prompt, earlier, strict=False):
                if left != right:
                    break
                common += 1
            longest = max(longest, common // block_size * block_size)
        hits.append(min(longest, (len(prompt) - 1) // block_size * block_size))
    return hits
