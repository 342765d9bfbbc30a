"""Mixtral and Phi-3.5-MoE: every layer has experts as wide as `intermediate_size`.

A `sliding_window` counts in every layer.
Source: transformers 5.24, models/mixtral, models/phimoe.
"""

from __future__ import annotations

from prefixaudit.core.model import Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    is_phi = config.model_type == "phimoe"
    mixer = attention(config, window=config.optional_integer("sliding_window"))
    experts = Experts(
        num_experts=config.integer("num_local_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
    )
    bias = is_phi and config.flag("attention_bias")
    # Phi's norms have a weight and a bias.
    norm = 2 * hidden if is_phi else hidden
    vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
    layer = LayerSpec(
        mixers=(mixer,), feed_forward=(experts,), num_vector_parameters=2 * norm + vectors
    )
    head_bias = config.integer("vocab_size") if config.flag("lm_head_bias") else 0
    embedding = rotary(config, head_dim=mixer.head_dim, theta=1_000_000.0)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
        num_vector_parameters=norm + head_bias,
    )


_MIXTRAL = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
}

FAMILY = ModelFamily(
    title="Mixtral, Phi-3.5-MoE",
    model_types={
        "mixtral": _MIXTRAL,
        "phimoe": {
            **_MIXTRAL,
            "vocab_size": 32_064,
            "intermediate_size": 6400,
            "num_local_experts": 16,
            "attention_bias": False,
            "lm_head_bias": False,
        },
    },
    describe=_describe,
    aliases={"num_experts": "num_local_experts"},
)
