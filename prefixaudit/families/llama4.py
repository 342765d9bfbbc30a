"""Llama 4: three layers attend within their chunk of 8,192, the fourth fully and without rotary.

`no_rope_layers` lists 1 for a layer WITH a rotary embedding. Routed and shared experts are
`intermediate_size` wide, dense layers `intermediate_size_mlp`.
Source: transformers 5.24, models/llama4.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, rotary_layers
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    chunk = config.optional_integer("attention_chunk_size")
    has_rotary = rotary_layers(config)
    kinds = config.kinds(("full_attention", "chunked_attention"))
    if kinds is None:
        kinds = tuple(
            "chunked_attention" if flag and chunk is not None else "full_attention"
            for flag in has_rotary
        )
    width = config.integer("intermediate_size")
    experts = Experts(
        num_experts=config.integer("num_local_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=width,
        shared_width=width,
    )
    dense = DenseMlp(width=config.integer("intermediate_size_mlp"))
    sparse = _sparse(config)
    bias = config.flag("attention_bias")
    layers = []
    for index, kind in enumerate(kinds):
        mixer = attention(config, chunk=chunk if kind == "chunked_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
        layers.append(
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(experts if index in sparse else dense,),
                num_vector_parameters=2 * hidden + vectors,
                position="default" if has_rotary[index] else None,
            )
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=500_000.0)
    # Queries of full layers are scaled by their position: safe, a function of position alone.
    tuning = {
        name: config.get(name) for name in ("attn_temperature_tuning", "floor_scale", "attn_scale")
    }
    return model(
        config,
        layers,
        position_encoding(config, {"default": embedding}, other=tuning),
    )


def _sparse(config: Config) -> frozenset[int]:
    given = config.integers("moe_layers")
    if given is not None:
        return frozenset(given)
    step = config.integer("interleave_moe_layer_step")
    return frozenset(range(step - 1, config.num_layers, step))


FAMILY = ModelFamily(
    title="Llama 4 Scout and Maverick",
    model_types={
        "llama4_text": {
            "vocab_size": 202_048,
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16_384,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": False,
            "num_experts_per_tok": 1,
            "num_local_experts": 16,
            "moe_layers": None,
            "interleave_moe_layer_step": 1,
            "no_rope_layers": None,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "layer_types": None,
            "attn_temperature_tuning": True,
            "floor_scale": 8192,
            "attn_scale": 0.1,
            "attention_bias": False,
        }
    },
    describe=_describe,
    containers={"llama4": "llama4_text"},
)
