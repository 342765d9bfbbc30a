"""Qwen3-Next and Qwen3.5: three layers of gated delta rule, then one of gated full attention.

Attention has a gate as wide as its queries; a quarter of each head is rotated. Qwen3.5 keeps its
recurrent state in float32 (`mamba_ssm_dtype`).
Source: transformers 5.24, models/qwen3_next, qwen3_5, qwen3_5_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, GatedDelta, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    model,
    sparse_layers,
    state_dtype,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    kinds = config.kinds(("linear_attention", "full_attention"), {"attention": "full_attention"})
    if kinds is None:
        step = config.optional_integer("full_attention_interval") or 4
        kinds = tuple(
            "full_attention" if (index + 1) % step == 0 else "linear_attention"
            for index in range(config.num_layers)
        )
    full = attention(config, output_gate=config.flag("attn_output_gate", default=True))
    bias = config.flag("attention_bias")
    delta = GatedDelta(
        num_key_heads=config.integer("linear_num_key_heads"),
        num_value_heads=config.integer("linear_num_value_heads"),
        key_head_dim=config.integer("linear_key_head_dim"),
        value_head_dim=config.integer("linear_value_head_dim"),
        conv_kernel=config.integer("linear_conv_kernel_dim"),
    )
    # A decay and a time step a value head, and the norm of one head.
    delta_vectors = 2 * delta.num_value_heads + delta.value_head_dim
    full_vectors = attention_vectors(full, hidden, qkv_bias=bias, output_bias=bias, norms="head")
    layers = []
    for kind, part in zip(kinds, _feed_forward(config), strict=True):
        is_full = kind == "full_attention"
        layers.append(
            LayerSpec(
                mixers=(full if is_full else delta,),
                feed_forward=(part,),
                num_vector_parameters=2 * hidden + (full_vectors if is_full else delta_vectors),
                position="default" if is_full else None,
            )
        )
    embedding = rotary(config, head_dim=full.head_dim, theta=10_000.0, partial=0.25)
    return model(
        config,
        layers,
        position_encoding(config, {"default": embedding}),
        state_dtype=state_dtype(config, "mamba_ssm_dtype"),
    )


def _feed_forward(config: Config) -> list[DenseMlp | Experts]:
    if config.model_type == "qwen3_5_text":
        return [DenseMlp(width=config.integer("intermediate_size"))] * config.num_layers
    experts = Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    if config.model_type == "qwen3_5_moe_text":
        return [experts] * config.num_layers
    dense = DenseMlp(width=config.integer("intermediate_size"))
    sparse = sparse_layers(config, num_experts=experts.num_experts)
    return [experts if is_sparse else dense for is_sparse in sparse]


_QWEN3_NEXT = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10,
    "num_experts": 512,
    "mlp_only_layers": None,
    "layer_types": None,
}

FAMILY = ModelFamily(
    title="Qwen3-Next, Qwen3.5",
    model_types={
        "qwen3_next": _QWEN3_NEXT,
        "qwen3_5_text": {
            **_QWEN3_NEXT,
            "vocab_size": 248_320,
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 32,
            "num_key_value_heads": 4,
        },
        "qwen3_5_moe_text": {
            **_QWEN3_NEXT,
            "vocab_size": 248_320,
            "num_hidden_layers": 40,
            "num_experts_per_tok": 8,
            "num_experts": 256,
        },
    },
    describe=_describe,
    aliases={"num_local_experts": "num_experts"},
    containers={"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"},
)
