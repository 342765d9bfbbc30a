"""Qwen2, Qwen2.5 and QwQ: dense, biases on q, k and v, windows in the upper layers if switched on.

`sliding_window` counts only with `use_sliding_window`, and then from layer `max_window_layers` on.
Source: transformers 5.24, models/qwen2, models/qwen2_vl, models/qwen2_5_vl.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    window = config.optional_integer("sliding_window")
    if not config.flag("use_sliding_window"):
        window = None
    first_windowed = config.integer("max_window_layers", minimum=0)
    kinds = windowed_kinds(
        config, (window is None or index < first_windowed for index in range(config.num_layers))
    )
    is_qwen3 = config.model_type == "qwen3"
    output_bias = is_qwen3 and config.flag("attention_bias")
    qkv_bias = output_bias if is_qwen3 else True
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=2 * hidden
            + attention_vectors(
                mixer,
                hidden,
                qkv_bias=qkv_bias,
                output_bias=output_bias,
                norms="head" if is_qwen3 else "none",
            ),
        )
    theta = 1_000_000.0 if config.model_type in ("qwen2_vl_text", "qwen2_5_vl_text") else 10_000.0
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=theta)
    return model(
        config,
        "qwen2",
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


_QWEN2 = {
    "vocab_size": 151_936,
    "hidden_size": 4096,
    "intermediate_size": 22_016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}

FAMILY = ModelFamily(
    title="Qwen2, Qwen2.5, Qwen3 (dense)",
    model_types={
        "qwen2": _QWEN2,
        "qwen3": {**_QWEN2, "head_dim": 128, "attention_bias": False},
    },
    describe=_describe,
)
