"""gpt-oss: every layer has experts, even layers (the first one included) see a window of 128.

Attention sinks cost no product. Its files name no dtype.
Source: transformers 5.24, models/gpt_oss.
"""

from __future__ import annotations

from prefixaudit.core.model import Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    kinds = windowed_kinds(config, (index % 2 == 1 for index in range(config.num_layers)))
    window = config.optional_integer("sliding_window")
    bias = config.flag("attention_bias")
    experts = Experts(
        num_experts=config.integer("num_local_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
    )
    # Biases of gate and up, of down, and of the router.
    expert_biases = experts.num_experts * (2 * experts.width + hidden + 1)
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(experts,),
            num_vector_parameters=2 * hidden + vectors + mixer.num_heads + expert_biases,
        )
    has_scaling = config.table("rope_parameters") or config.table("rope_scaling")
    embedding = rotary(
        config,
        head_dim=attention(config).head_dim,
        theta=150_000.0,
        parameters=None if has_scaling else _DEFAULT_ROTARY,
    )
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {"default": embedding}),
    )


_DEFAULT_ROTARY = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}

FAMILY = ModelFamily(
    title="gpt-oss",
    model_types={
        "gpt_oss": {
            "num_hidden_layers": 36,
            "num_local_experts": 128,
            "vocab_size": 201_088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "head_dim": 64,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "tie_word_embeddings": False,
            "max_position_embeddings": 131_072,
            "num_experts_per_tok": 4,
            "layer_types": None,
            "attention_bias": True,
        }
    },
    describe=_describe,
    aliases={"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"},
)
