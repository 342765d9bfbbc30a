"""Command R and A: one norm a layer; in Cohere 2 every fourth layer is full, without rotary.

Source: transformers 5.24, models/cohere, models/cohere2.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    is_second = config.model_type == "cohere2"
    period = config.optional_integer("sliding_window_pattern") or 4
    kinds = windowed_kinds(
        config, (not is_second or (index + 1) % period == 0 for index in range(config.num_layers))
    )
    window = config.optional_integer("sliding_window") if is_second else None
    bias = config.flag("attention_bias")
    norms = config.flag("use_qk_norm") and not is_second
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(
            mixer, hidden, qkv_bias=bias, output_bias=bias, norms="width" if norms else "none"
        )
        without_rotary = is_second and kind == "full_attention"
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=hidden + vectors,
            position=None if without_rotary else "default",
        )
    theta = 10_000.0 if is_second else 500_000.0
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=theta)
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


_COHERE = {
    "vocab_size": 256_000,
    "hidden_size": 8192,
    "intermediate_size": 22_528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": None,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
}

FAMILY = ModelFamily(
    title="Command R, R+, R7B, Command A, Aya",
    model_types={
        "cohere": {**_COHERE, "use_qk_norm": False},
        "cohere2": {**_COHERE, "sliding_window": 4096, "layer_types": None},
    },
    describe=_describe,
    aliases={"_sliding_window_pattern": "sliding_window_pattern"},
)
