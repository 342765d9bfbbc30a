"""Falcon-H1: Mamba-2 and attention side by side in every layer.

Source: transformers 5.24, models/falcon_h1.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, Mamba2, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    mamba2_vectors,
    mlp_bias_vectors,
    model,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    full = attention(config)
    inner = config.optional_integer("mamba_d_ssm")
    mamba = Mamba2(
        inner=inner if inner is not None else config.integer("mamba_expand") * hidden,
        state_size=config.integer("mamba_d_state"),
        num_groups=config.integer("mamba_n_groups"),
        num_heads=config.integer("mamba_n_heads"),
        conv_kernel=config.integer("mamba_d_conv"),
    )
    bias = config.flag("attention_bias")
    width = config.integer("intermediate_size")
    vectors = 2 * hidden + attention_vectors(full, hidden, qkv_bias=bias, output_bias=bias)
    vectors += mamba2_vectors(
        mamba,
        hidden,
        conv_bias=config.flag("mamba_conv_bias", default=True),
        input_bias=config.flag("mamba_proj_bias"),
        output_bias=config.flag("projectors_bias"),
        norm=config.flag("mamba_rms_norm"),
    )
    if config.flag("mlp_bias"):
        vectors += mlp_bias_vectors(width, hidden)
    layer = LayerSpec(
        mixers=(full, mamba),
        feed_forward=(DenseMlp(width=width),),
        num_vector_parameters=vectors,
    )
    embedding = rotary(config, head_dim=full.head_dim, theta=10_000.0)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
    )


FAMILY = ModelFamily(
    title="Falcon-H1",
    model_types={
        "falcon_h1": {
            "vocab_size": 128_000,
            "tie_word_embeddings": False,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "mamba_d_ssm": 1024,
            "mamba_n_heads": 128,
            "mamba_n_groups": 1,
            "mamba_d_state": 256,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_conv_bias": True,
            "mamba_proj_bias": False,
            "mamba_rms_norm": False,
            "projectors_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
        }
    },
    describe=_describe,
)
