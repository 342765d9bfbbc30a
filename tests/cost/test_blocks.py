"""vLLM's groups and blocks, against sizes that engines logged."""

from __future__ import annotations

import pytest

from prefixaudit.core.model import ModelSpec
from prefixaudit.cost.blocks import effective_block_size, vllm_layout
from prefixaudit.families import describe

from .golden import published_config


def spec_of(name: str, **fields: object) -> ModelSpec:
    config = published_config(name)
    if "text_config" in config:
        config = {**config, "text_config": {**config["text_config"], **fields}}
    else:
        config = {**config, **fields}
    return describe(config)


def test_block_of_qwen35_4b_is_528() -> None:
    """Logged in vllm-project/vllm#40696. Of the 4B: 4 KV heads of 256, 32 value heads of 128."""
    spec = spec_of("qwen3.5-27b", linear_num_value_heads=32)

    assert effective_block_size(spec) == 528
    assert vllm_layout(spec).padding_share == pytest.approx(0.0076, abs=1e-4)


def test_block_of_qwen35_27b_with_fp8_keys_is_1568() -> None:
    """Logged in noonghunna/club-3090#1047, with 0.13 % of padding."""
    spec = spec_of("qwen3.5-27b")

    assert effective_block_size(spec, kv_cache_dtype="fp8") == 1568
    assert vllm_layout(spec, kv_cache_dtype="fp8").padding_share == pytest.approx(0.0013, abs=1e-4)


def test_block_of_qwen35_35b_is_1056() -> None:
    assert effective_block_size(spec_of("qwen3.5-35b-a3b")) == 1056


def test_block_of_qwen3_next_with_bfloat16_states_is_544() -> None:
    assert effective_block_size(spec_of("qwen3-next-80b-a3b")) == 544


def test_block_on_two_ranks_is_2096() -> None:
    """Logged for Qwen3.5-397B at TP 2 (vllm-project/vllm#35703): 64 value heads, 2 KV heads."""
    spec = spec_of("qwen3.5-35b-a3b", linear_num_value_heads=64)

    assert effective_block_size(spec, tensor_parallel=2) == 2096


def test_models_without_states_keep_their_block() -> None:
    assert effective_block_size(spec_of("llama-3.1-8b")) == 16
    assert effective_block_size(spec_of("gemma-3-27b-it"), block_size=32) == 32


@pytest.mark.parametrize(
    ("name", "group_size", "num_groups", "bytes_per_block"),
    [
        ("llama-3.1-8b", 32, [1], 2 * 2**20),
        ("gemma-3-27b-it", 10, [1, 6], 1_310_720),
        ("gpt-oss-20b", 12, [1, 1], 12 * 16 * 2048),
        ("llama-4-scout", 12, [1, 3], 12 * 16 * 4096),
        # Wide heads on full layers: half the bytes a token, so blocks of twice the tokens.
        ("gemma-4-26b-a4b", 5, [1, 5], 5 * 16 * 8192),
        # Indexer keys of 132 bytes lie beside the latents in one group.
        ("deepseek-v3.2", 61, [1], 61 * 16 * (576 * 2 + 132)),
    ],
)
def test_layers_form_groups(
    name: str, group_size: int, num_groups: list[int], bytes_per_block: int
) -> None:
    layout = vllm_layout(spec_of(name))

    assert layout.group_size == group_size
    assert sorted(group.num_groups for group in layout.groups) == num_groups
    assert layout.bytes_per_block == bytes_per_block


def test_wider_pages_give_the_other_kind_larger_blocks() -> None:
    layout = vllm_layout(spec_of("gemma-4-26b-a4b"))

    assert {group.kind: group.block_size for group in layout.groups} == {"full": 32, "window": 16}


def test_window_that_no_sequence_exceeds_is_none() -> None:
    """Phi-3.5's window of 262,144 is twice its longest position."""
    layout = vllm_layout(spec_of("phi-3.5-mini-instruct"))

    assert [group.kind for group in layout.groups] == ["full"]


def test_without_the_hybrid_manager_windows_are_full() -> None:
    layout = vllm_layout(spec_of("gemma-3-27b-it"), has_hybrid_manager=False)

    assert layout.num_groups == 1
    assert layout.bytes_per_block == 16 * 507_904


def test_pool_of_qwen3_235b_is_within_a_percent_of_its_log() -> None:
    """vllm-project/vllm#21348: 8.11 GiB a rank at TP 4, 178,880 tokens logged."""
    layout = vllm_layout(spec_of("qwen3-235b-a22b-fp8"), tensor_parallel=4)

    tokens = layout.num_tokens(layout.num_blocks(int(8.11 * 2**30)))

    assert tokens == 180_928
    assert tokens == pytest.approx(178_880, rel=0.012)


def test_pool_of_llama_in_50_gib() -> None:
    layout = vllm_layout(spec_of("llama-3.1-8b"))

    blocks = layout.num_blocks(50 * 2**30)

    assert (blocks, layout.num_tokens(blocks)) == (25_600, 409_600)


def test_requests_hold_their_window_and_the_step_in_flight() -> None:
    """gpt-oss: 512 full blocks; in windows 127 + 2,048 tokens and one block more."""
    layout = vllm_layout(spec_of("gpt-oss-20b"))

    assert layout.blocks_of_request(8192) == 512 + 8 + 1
    assert layout.blocks_of_request(8192, max_batched_tokens=2048) == 512 + 136 + 1
    assert layout.blocks_of_request(16, max_batched_tokens=2048) == 2
    assert layout.concurrency(5210, 8192) == pytest.approx(10.0)


def test_cached_tokens_take_a_block_of_each_group() -> None:
    """Gemma-3-27B: one full and six windowed groups. Llama: as many bytes as 16 tokens have."""
    assert vllm_layout(spec_of("gemma-3-27b-it")).bytes_of_prefix_block == 7 * 1_310_720
    assert vllm_layout(spec_of("llama-3.1-8b")).bytes_of_prefix_block == 16 * 131_072
