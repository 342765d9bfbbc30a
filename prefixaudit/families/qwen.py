"""Qwen2, Qwen2.5, QwQ and Qwen3, dense, with the text parts of their vision models.

`sliding_window` counts only with `use_sliding_window`, and then from layer `max_window_layers` on.
Source: transformers 5.24, models/qwen2, qwen3, qwen2_vl, qwen2_5_vl, qwen3_vl.
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
    # The vision model's text part has no windows, whatever its file says.
    if not config.flag("use_sliding_window") or config.model_type == "qwen3_vl_text":
        window = None
    upper = config.optional_integer("max_window_layers", minimum=0)
    first_windowed = config.num_layers if upper is None else upper
    kinds = windowed_kinds(
        config, (window is None or index < first_windowed for index in range(config.num_layers))
    )
    is_qwen3 = config.model_type.startswith("qwen3")
    output_bias = is_qwen3 and config.flag("attention_bias")
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(
            mixer,
            hidden,
            qkv_bias=output_bias if is_qwen3 else True,
            output_bias=output_bias,
            norms="head" if is_qwen3 else "none",
        )
        layers[kind] = LayerSpec(
            mixers=(mixer,), feed_forward=(mlp,), num_vector_parameters=2 * hidden + vectors
        )
    theta = _THETAS.get(config.model_type, 10_000.0)
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=theta)
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


_THETAS = {
    "qwen2_vl_text": 1_000_000.0,
    "qwen2_5_vl_text": 1_000_000.0,
    "qwen3_vl_text": 500_000.0,
}

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
_QWEN2_VL = {
    **_QWEN2,
    "vocab_size": 152_064,
    "hidden_size": 8192,
    "intermediate_size": 29_568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_window_layers": 80,
}
_QWEN3 = {**_QWEN2, "head_dim": 128, "attention_bias": False}

FAMILY = ModelFamily(
    title="Qwen2, Qwen2.5, QwQ and Qwen3 (dense)",
    model_types={
        "qwen2": _QWEN2,
        "qwen2_vl_text": _QWEN2_VL,
        "qwen2_5_vl_text": _QWEN2_VL,
        "qwen3": _QWEN3,
        "qwen3_vl_text": {**_QWEN3, "max_position_embeddings": 128_000},
    },
    describe=_describe,
    containers={
        "qwen2_vl": "qwen2_vl_text",
        "qwen2_5_vl": "qwen2_5_vl_text",
        "qwen3_vl": "qwen3_vl_text",
    },
)
