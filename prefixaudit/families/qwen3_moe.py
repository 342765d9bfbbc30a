"""Qwen3-MoE, with the text part of Qwen3-VL-MoE: routed experts only, query-key norms.

A window, if switched on, counts in every layer.
Source: transformers 5.24, models/qwen3_moe, models/qwen3_vl_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, sparse_layers
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    has_window = config.flag("use_sliding_window") and config.model_type == "qwen3_moe"
    window = config.optional_integer("sliding_window") if has_window else None
    mixer = attention(config, window=window)
    bias = config.flag("attention_bias")
    vectors = 2 * hidden + attention_vectors(
        mixer, hidden, qkv_bias=bias, output_bias=bias, norms="head"
    )
    experts = Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
    )
    dense = DenseMlp(width=config.integer("intermediate_size"))
    theta = 500_000.0 if config.model_type == "qwen3_vl_moe_text" else 10_000.0
    embedding = rotary(config, head_dim=mixer.head_dim, theta=theta)
    return model(
        config,
        (
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(experts if is_sparse else dense,),
                num_vector_parameters=vectors,
            )
            for is_sparse in sparse_layers(config, num_experts=experts.num_experts)
        ),
        position_encoding(config, {"default": embedding}),
    )


_QWEN3_MOE = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
    "mlp_only_layers": None,
}

FAMILY = ModelFamily(
    title="Qwen3 with experts, Qwen3-Coder, Qwen3-VL-MoE",
    model_types={
        "qwen3_moe": _QWEN3_MOE,
        "qwen3_vl_moe_text": {
            **_QWEN3_MOE,
            "intermediate_size": 5632,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "max_position_embeddings": 128_000,
            "tie_word_embeddings": True,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 4,
            "num_experts": 60,
            "head_dim": None,
        },
    },
    describe=_describe,
    aliases={"num_local_experts": "num_experts"},
    containers={"qwen3_vl_moe": "qwen3_vl_moe_text"},
)
