"""Phi-3, Phi-3.5-mini and Phi-4: dense, fused projections, long rotary embeddings.

The rope types `su` and `yarn` of old files mean `longrope` here.
Source: transformers 5.24, models/phi3.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    mixer = attention(config, window=config.optional_integer("sliding_window"))
    layer = LayerSpec(
        mixers=(mixer,),
        feed_forward=(DenseMlp(width=config.integer("intermediate_size")),),
        num_vector_parameters=2 * config.hidden_size,
    )
    embedding = rotary(
        config,
        head_dim=mixer.head_dim,
        theta=10_000.0,
        renamed_types={"su": "longrope", "yarn": "longrope"},
    )
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
    )


FAMILY = ModelFamily(
    title="Phi-3, Phi-3.5-mini, Phi-4",
    model_types={
        "phi3": {
            "vocab_size": 32_064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "sliding_window": None,
        }
    },
    describe=_describe,
)
