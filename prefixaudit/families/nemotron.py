"""Nemotron and Minitron (dense): squared ReLU without a gate, half of each head is rotated.

Source: transformers 5.24, models/nemotron.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, mlp_bias_vectors, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mixer = attention(config)
    width = config.integer("intermediate_size")
    bias = config.flag("attention_bias")
    # Norms have a weight and a bias.
    vectors = 4 * hidden + attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
    if config.flag("mlp_bias"):
        vectors += mlp_bias_vectors(width, hidden, gated=False)
    layer = LayerSpec(
        mixers=(mixer,),
        feed_forward=(DenseMlp(width=width, gated=False),),
        num_vector_parameters=vectors,
    )
    embedding = rotary(config, head_dim=mixer.head_dim, theta=10_000.0, partial=0.5)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
        num_vector_parameters=2 * hidden,
    )


FAMILY = ModelFamily(
    title="Nemotron-4, Minitron (dense)",
    model_types={
        "nemotron": {
            "vocab_size": 256_000,
            "hidden_size": 6144,
            "intermediate_size": 24_576,
            "num_hidden_layers": 32,
            "num_attention_heads": 48,
            "head_dim": None,
            "num_key_value_heads": None,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
        }
    },
    describe=_describe,
)
