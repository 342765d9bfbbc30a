"""Qwen1.5-MoE and Qwen2-MoE: routed experts and a gated shared one, of its own width.

Source: transformers 5.24, models/qwen2_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    model,
    sparse_layers,
    windowed_kinds,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    window = config.optional_integer("sliding_window", minimum=0) or None
    if not config.flag("use_sliding_window"):
        window = None
    below = config.integer("max_window_layers", minimum=0)
    kinds = windowed_kinds(
        config,
        (window is None or index % 2 == 1 or index >= below for index in range(config.num_layers)),
    )
    experts = Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    dense = DenseMlp(width=config.integer("intermediate_size"))
    sparse = sparse_layers(config, num_experts=experts.num_experts)
    bias = config.flag("qkv_bias", default=True)
    layers = []
    for kind, is_sparse in zip(kinds, sparse, strict=True):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        layers.append(
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(experts if is_sparse else dense,),
                num_vector_parameters=2 * hidden + attention_vectors(mixer, hidden, qkv_bias=bias),
            )
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=10_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


FAMILY = ModelFamily(
    title="Qwen1.5-MoE, Qwen2-57B-A14B",
    model_types={
        "qwen2_moe": {
            "vocab_size": 151_936,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "sliding_window": 4096,
            "max_window_layers": 28,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts_per_tok": 4,
            "num_experts": 60,
            "mlp_only_layers": None,
            "qkv_bias": True,
            "layer_types": None,
        }
    },
    describe=_describe,
    aliases={"num_local_experts": "num_experts"},
)
