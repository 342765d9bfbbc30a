"""OLMoE: experts in every layer, query-key norms over all heads.

Source: transformers 5.24, models/olmoe.
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
    bias = config.flag("attention_bias")
    vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias, norms="width")
    layer = LayerSpec(
        mixers=(mixer,),
        feed_forward=(
            Experts(
                num_experts=config.integer("num_experts"),
                num_per_token=config.integer("num_experts_per_tok"),
                width=config.integer("intermediate_size"),
            ),
        ),
        num_vector_parameters=2 * hidden + vectors,
    )
    embedding = rotary(config, head_dim=mixer.head_dim, theta=10_000.0)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
    )


FAMILY = ModelFamily(
    title="OLMoE",
    model_types={
        "olmoe": {
            "vocab_size": 50_304,
            "hidden_size": 2048,
            "intermediate_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": None,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "num_experts_per_tok": 8,
            "num_experts": 64,
        }
    },
    describe=_describe,
    aliases={"num_local_experts": "num_experts"},
)
