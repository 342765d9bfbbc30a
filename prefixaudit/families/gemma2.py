"""Gemma 1 and 2: wide heads; in Gemma 2 even layers (the first one included) see a window.

Source: transformers 5.24, models/gemma, models/gemma2.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    is_first = config.model_type == "gemma"
    window = None if is_first else config.optional_integer("sliding_window")
    kinds = windowed_kinds(
        config, (is_first or index % 2 == 1 for index in range(config.num_layers))
    )
    bias = config.flag("attention_bias")
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
        num_norms = 2 if is_first else 4
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=num_norms * hidden + vectors,
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=10_000.0)
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


_GEMMA = {
    "vocab_size": 256_000,
    "hidden_size": 3072,
    "intermediate_size": 24_576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
}

FAMILY = ModelFamily(
    title="Gemma 1 and 2",
    model_types={
        "gemma": _GEMMA,
        "gemma2": {
            **_GEMMA,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "layer_types": None,
        },
    },
    describe=_describe,
)
