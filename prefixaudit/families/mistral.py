"""Mistral and Ministral: dense decoders whose layers may all see a window.

A missing `sliding_window` means a window of 4,096 in every layer of `mistral`, null means none.
Source: transformers 5.24, models/mistral, models/ministral, models/ministral3, models/mistral3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, model, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    window = config.optional_integer("sliding_window")
    kinds = ["sliding_attention" if window else "full_attention"] * config.num_layers
    if config.model_type == "ministral":
        kinds = list(windowed_kinds(config, [window is None] * config.num_layers))
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    mixers = {
        "full_attention": attention(config),
        "sliding_attention": attention(config, window=window),
    }
    has_rotary = config.table("rope_parameters") or config.table("rope_scaling")
    is_third = config.model_type == "ministral3" and not has_rotary
    embedding = rotary(
        config,
        head_dim=mixers["full_attention"].head_dim,
        theta=10_000.0,
        parameters=_default_ministral3(config) if is_third else None,
    )
    return model(
        config,
        (
            LayerSpec(mixers=(mixers[kind],), feed_forward=(mlp,), num_vector_parameters=2 * hidden)
            for kind in kinds
        ),
        position_encoding(config, {"default": embedding}),
    )


def _default_ministral3(config: Config) -> Mapping[str, Any]:
    return {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16_384,
        "max_position_embeddings": config.get("max_position_embeddings"),
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        "llama_4_scaling_beta": 0.1,
    }


_MISTRAL = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
    "sliding_window": 4096,
}

FAMILY = ModelFamily(
    title="Mistral, Ministral, Devstral, Pixtral",
    model_types={
        "mistral": _MISTRAL,
        "ministral": _MISTRAL,
        "ministral3": {
            **_MISTRAL,
            "vocab_size": 131_072,
            "num_hidden_layers": 34,
            "head_dim": 128,
            "max_position_embeddings": 262_144,
            "sliding_window": None,
        },
    },
    describe=_describe,
    containers={"mistral3": "mistral"},
)
