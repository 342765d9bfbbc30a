"""What an adapter adds, worked out by hand."""

from __future__ import annotations

import pytest

from prefixaudit.cost.lora import MLP_MODULES, lora_flops_per_token
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe

from .golden import published_config


def test_adapter_on_attention() -> None:
    """Llama-3.1-8B: q and o 4096 + 4096, k and v 4096 + 1024, in 32 layers."""
    spec = describe(published_config("llama-3.1-8b"))

    flops = lora_flops_per_token(spec, rank=16)

    assert flops == 32 * 2 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024))


def test_adapter_on_experts_counts_those_that_a_token_passes() -> None:
    """Mixtral: two of eight experts of 14,336, three matrices each, in 32 layers."""
    spec = describe(published_config("mixtral-8x7b"))

    flops = lora_flops_per_token(spec, rank=8, modules=MLP_MODULES)

    assert flops == 32 * 2 * 8 * 2 * 3 * (4096 + 14_336)


def test_latent_attention_has_modules_of_its_own() -> None:
    spec = describe(published_config("deepseek-v3"))

    assert lora_flops_per_token(spec, rank=1, modules=("kv_b_proj",)) == 61 * 2 * (
        512 + 128 * (128 + 128)
    )


def test_modules_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigurationError, match="has none of the modules gate_proj"):
        lora_flops_per_token(
            describe({"model_type": "nemotron_h", "hybrid_override_pattern": "M-"}),
            rank=8,
            modules=("gate_proj",),
        )
    with pytest.raises(ConfigurationError, match="unknown LoRA module 'query'"):
        lora_flops_per_token(describe(published_config("llama-3.1-8b")), rank=8, modules=("query",))
