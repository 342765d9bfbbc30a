"""MiniMax-M2: experts in every layer, query-key norms over all heads, partial rotary.

Source: transformers 5.24, models/minimax_m2.
"""

from __future__ import annotations

from prefixaudit.core.model import Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mixer = attention(config)
    experts = Experts(
        num_experts=config.integer("num_local_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
    )
    layer = LayerSpec(
        mixers=(mixer,),
        feed_forward=(experts,),
        num_vector_parameters=2 * hidden + attention_vectors(mixer, hidden, norms="width"),
    )
    # Published files give the rotated elements of a head instead of their share.
    rotated = config.optional_integer("rotary_dim")
    partial = rotated / mixer.head_dim if rotated is not None else 1.0
    embedding = rotary(config, head_dim=mixer.head_dim, theta=5_000_000.0, partial=partial)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
    )


FAMILY = ModelFamily(
    title="MiniMax-M2",
    model_types={
        "minimax_m2": {
            "vocab_size": 200_064,
            "hidden_size": 3072,
            "intermediate_size": 1536,
            "num_hidden_layers": 62,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 196_608,
            "tie_word_embeddings": False,
            "num_experts_per_tok": 8,
            "num_local_experts": 256,
        }
    },
    describe=_describe,
    aliases={"num_experts": "num_local_experts"},
)
