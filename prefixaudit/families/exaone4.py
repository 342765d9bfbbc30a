"""EXAONE 4: query-key norms; with windows, every fourth layer is full and without rotary.

`sliding_window_pattern` is a number (every n-th layer is full) or letters (L local, G global).
Source: transformers 5.24, models/exaone4.
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
    kinds = windowed_kinds(
        config, (window is None or _is_full(config, index) for index in range(config.num_layers))
    )
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        is_windowed = kind == "sliding_attention"
        mixer = attention(config, window=window if is_windowed else None)
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=2 * hidden + attention_vectors(mixer, hidden, norms="head"),
            position="default" if window is None or is_windowed else None,
        )
    embedding = rotary(config, head_dim=attention(config).head_dim, theta=10_000.0)
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


def _is_full(config: Config, index: int) -> bool:
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return pattern[index % len(pattern)] == "G"
    return (index + 1) % config.integer("sliding_window_pattern") == 0


FAMILY = ModelFamily(
    title="EXAONE 4",
    model_types={
        "exaone4": {
            "vocab_size": 102_400,
            "hidden_size": 4096,
            "intermediate_size": 16_384,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
            "layer_types": None,
        }
    },
    describe=_describe,
)
