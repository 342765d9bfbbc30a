"""Bytes of keys, values and states, against the sizes of real caches and public logs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.memory import (
    kv_bytes_per_token,
    kv_groups,
    mixer_kv_bytes,
    sequence_bytes,
    state_bytes,
    state_elements,
)
from prefixaudit.cost.pool import PoolSettings, estimate_pool
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe, describe_cache

from .golden import DATA, golden_records, published_config

RECORDS = golden_records()


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_kv_bytes_are_those_of_the_real_cache(
    config: dict[str, Any], record: dict[str, Any]
) -> None:
    spec, kv = describe(config), record["kv"]

    assert kv_bytes_per_token(spec, kv_cache_dtype="bfloat16") == kv["bytes_per_token_bf16"]
    assert kv_bytes_per_token(spec, kv_cache_dtype="fp8") == kv["bytes_per_token_fp8"]
    for ranks, expected in kv["bytes_per_token_per_rank_bf16"].items():
        found = kv_bytes_per_token(spec, kv_cache_dtype="bfloat16", tensor_parallel=int(ranks))
        assert found == expected


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_states_are_those_of_the_real_cache(config: dict[str, Any], record: dict[str, Any]) -> None:
    mixers = describe(config).cache.mixers

    recurrent = sum(state_elements(mixer)[0] for mixer in mixers)
    convolution = sum(state_elements(mixer)[1] for mixer in mixers)

    assert recurrent == record["kv"]["recurrent_state_elements_per_sequence"]
    assert convolution == record["kv"]["conv_state_elements_per_sequence"]


def test_few_heads_on_many_ranks_are_replicated() -> None:
    """Qwen3-235B has 4 KV heads: 8 ranks hold twice the bytes of 4 in all."""
    spec = describe(published_config("qwen3-235b-a22b"))

    in_all = [ranks * kv_bytes_per_token(spec, tensor_parallel=ranks) for ranks in (1, 4, 8)]

    assert in_all == [192_512, 192_512, 2 * 192_512]


def test_case_b051_windowed_layers_stop_growing() -> None:
    """Expected by hand: 24 layers of 4,096 bytes a token up to 1,024 tokens, 4 of them after."""
    folder = DATA / "cases" / "B051-kv-size-of-a-hybrid-model"
    cache = describe_cache(json.loads((folder / "config.json").read_text()))
    expected = json.loads((folder / "expected.json").read_text())["answer"]
    pool = 20 * 2**30

    assert sequence_bytes(cache, 32_768) == expected["bytes_one_conversation"]
    assert sequence_bytes(cache, 1024) == expected["bytes_first_1024_tokens"]
    assert round(pool / sequence_bytes(cache, 32_768), 2) == expected["conversations_in_20_GiB"]
    full = sequence_bytes(cache, 32_768, has_hybrid_manager=False)
    assert round(pool / full, 2) == expected["wrong_if_all_layers_full"]
    assert mixer_kv_bytes(cache.mixers[0], "bfloat16") == expected["bytes_per_token_per_layer"]


def test_float32_states_of_a_bfloat16_model() -> None:
    """Qwen3.5-35B-A3B, 30 layers: 32 heads of 128 by 128 in float32, 3 columns of 8,192 in bf16."""
    spec = describe(published_config("qwen3.5-35b-a3b"))

    assert state_bytes(spec) == 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        # Published: 507,904 bytes a token, 425,984 of them windowed.
        ("gemma-3-27b-it", [("window", 1024, 52, 425_984), ("full", None, 10, 81_920)]),
        ("llama-4-scout", [("chunk", 8192, 36, 147_456), ("full", None, 12, 49_152)]),
        ("llama-3.1-8b", [("full", None, 32, 131_072)]),
        ("qwen3.5-35b-a3b", [("state", None, 30, 0), ("full", None, 10, 20_480)]),
    ],
)
def test_layers_fall_into_groups(name: str, groups: list[tuple[str, int | None, int, int]]) -> None:
    found = kv_groups(describe(published_config(name)), kv_cache_dtype="bfloat16")

    assert [
        (group.kind, group.span, group.num_layers, group.bytes_per_token) for group in found
    ] == groups


@pytest.mark.parametrize("config", [item[1] for item in RECORDS], ids=[item[0] for item in RECORDS])
@pytest.mark.parametrize("ranks", [1, 2])
def test_groups_add_up(config: dict[str, Any], ranks: int) -> None:
    spec = describe(config)

    groups = kv_groups(spec, tensor_parallel=ranks)

    assert sum(group.bytes_per_token for group in groups) == kv_bytes_per_token(
        spec, tensor_parallel=ranks
    )
    assert sum(group.state_bytes for group in groups) == state_bytes(spec, tensor_parallel=ranks)


def test_latent_formats_replace_the_whole_latent() -> None:
    spec = describe(published_config("deepseek-v3"))

    assert kv_bytes_per_token(spec, kv_cache_dtype="fp8_ds_mla") == 61 * 656
    with pytest.raises(ConfigurationError, match="for latent attention only"):
        kv_bytes_per_token(describe(published_config("llama-3.1-8b")), kv_cache_dtype="fp8_ds_mla")


def test_scales_a_token_and_head_are_counted() -> None:
    spec = describe(published_config("llama-3.1-8b"))

    # 32 layers of 2 * 8 heads of 128 one-byte elements and a float32 scale.
    assert kv_bytes_per_token(spec, kv_cache_dtype="fp8_per_token_head") == 32 * 16 * (128 + 4)


def test_unknown_cache_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown KV cache dtype 'fp9'"):
        kv_bytes_per_token(describe(published_config("llama-3.1-8b")), kv_cache_dtype="fp9")


def test_gpt_oss_files_without_dtype_are_kept_in_bfloat16() -> None:
    assert kv_bytes_per_token(describe(published_config("gpt-oss-20b"))) == 49_152


def test_latent_format_of_a_hybrid_without_latents_is_named_as_such() -> None:
    spec = describe(published_config("nemotron-3-nano-30b-a3b"))

    with pytest.raises(ConfigurationError, match="'fp8_ds_mla' is for latent attention only"):
        estimate_pool(
            spec,
            PoolSettings(engine="vllm", kv_cache_dtype="fp8_ds_mla"),
            gpu=find_gpu("h100-sxm"),
        )
