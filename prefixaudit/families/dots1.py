"""dots.llm1: query-key norms, dense layers first, then routed and shared experts.

A `sliding_window` counts from layer `max_window_layers` on.
Source: transformers 5.24, models/dots1.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    deepseek_experts,
    dense_first,
    model,
    windowed_kinds,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    window = config.optional_integer("sliding_window")
    first_windowed = config.integer("max_window_layers", minimum=0)
    kinds = windowed_kinds(
        config, (window is None or index < first_windowed for index in range(config.num_layers))
    )
    bias = config.flag("attention_bias")
    dense = DenseMlp(width=config.integer("intermediate_size"))
    sparse = dense_first(config)
    experts = deepseek_experts(config) if any(sparse) else None
    layers = []
    for kind, is_sparse in zip(kinds, sparse, strict=True):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias, norms="head")
        layers.append(
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(experts if is_sparse and experts is not None else dense,),
                num_vector_parameters=2 * hidden + vectors,
            )
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=10_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


FAMILY = ModelFamily(
    title="dots.llm1",
    model_types={
        "dots1": {
            "vocab_size": 152_064,
            "hidden_size": 4608,
            "intermediate_size": 10_944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "n_shared_experts": None,
            "n_routed_experts": None,
            "num_experts_per_tok": None,
            "first_k_dense_replace": 0,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "sliding_window": 4096,
            "max_window_layers": 62,
            "layer_types": None,
        }
    },
    describe=_describe,
    aliases={"num_local_experts": "n_routed_experts"},
)
