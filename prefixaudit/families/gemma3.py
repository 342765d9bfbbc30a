"""Gemma 3: five windowed layers, then a full one, each kind with its own rotary embedding.

Published files leave out fields of the text part that equal the class defaults (the vocabulary of
262,208 among them). `rope_scaling` and `rope_theta` of old files are those of the full layers,
`rope_local_base_freq` that of the windowed ones.
Source: transformers 5.24, models/gemma3.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import local_and_global, position_encoding


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    period = config.integer("sliding_window_pattern")
    kinds = windowed_kinds(
        config, ((index + 1) % period == 0 for index in range(config.num_layers))
    )
    window = config.optional_integer("sliding_window")
    if window is not None and config.flag("use_bidirectional_attention"):
        window = window // 2 + 1
    bias = config.flag("attention_bias")
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias, norms="head")
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=4 * hidden + vectors,
            position=kind,
        )
    embeddings = local_and_global(
        config,
        head_dim=attention(config).head_dim,
        theta=1_000_000.0,
        local_theta=config.number("rope_local_base_freq", 10_000.0),
    )
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, embeddings),
    )


FAMILY = ModelFamily(
    title="Gemma 3",
    model_types={
        "gemma3_text": {
            "vocab_size": 262_208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "layer_types": None,
            "use_bidirectional_attention": False,
        }
    },
    describe=_describe,
    aliases={"_sliding_window_pattern": "sliding_window_pattern"},
    containers={"gemma3": "gemma3_text"},
)
