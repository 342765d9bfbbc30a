"""SmolLM3: dense; every fourth layer has no rotary embedding (and a window, if switched on).

`no_rope_layers` lists 1 for a layer WITH a rotary embedding.
Source: transformers 5.24, models/smollm3.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    mlp_bias_vectors,
    model,
    rotary_layers,
    windowed_kinds,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    has_rotary = rotary_layers(config)
    window = config.optional_integer("sliding_window")
    if not config.flag("use_sliding_window"):
        window = None
    kinds = windowed_kinds(config, (window is None or flag for flag in has_rotary))
    width = config.integer("intermediate_size")
    bias = config.flag("attention_bias")
    layers = []
    for kind, with_rotary in zip(kinds, has_rotary, strict=True):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
        if config.flag("mlp_bias"):
            vectors += mlp_bias_vectors(width, hidden)
        layers.append(
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(DenseMlp(width=width),),
                num_vector_parameters=2 * hidden + vectors,
                position="default" if with_rotary else None,
            )
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=2_000_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


FAMILY = ModelFamily(
    title="SmolLM3",
    model_types={
        "smollm3": {
            "vocab_size": 128_256,
            "hidden_size": 2048,
            "intermediate_size": 11_008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32_768,
            "use_sliding_window": False,
            "sliding_window": None,
            "no_rope_layers": None,
            "no_rope_layer_interval": 4,
            "layer_types": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
        }
    },
    describe=_describe,
)
