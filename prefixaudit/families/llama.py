"""Llama and the decoders that are Llama in all but name: dense, full attention.

Arcee's MLP has no gate; Seed-OSS biases q, k and v but not o; Hunyuan normalizes queries and keys.
Source: transformers 5.24, models/llama, granite, seed_oss, arcee, hunyuan_v1_dense.
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
    mlp = DenseMlp(width=config.integer("intermediate_size"), gated=config.model_type != "arcee")
    bias = config.flag("attention_bias")
    vectors = 2 * hidden + attention_vectors(
        mixer,
        hidden,
        qkv_bias=bias,
        output_bias=config.flag("attention_out_bias", default=bias),
        norms="head" if config.model_type == "hunyuan_v1_dense" else "none",
    )
    if config.flag("mlp_bias"):
        vectors += mlp_bias_vectors(mlp.width, hidden, gated=mlp.gated)
    layer = LayerSpec(mixers=(mixer,), feed_forward=(mlp,), num_vector_parameters=vectors)
    embedding = rotary(config, head_dim=mixer.head_dim, theta=10_000.0)
    return model(
        config,
        (layer,) * config.num_layers,
        position_encoding(config, {"default": embedding}),
    )


_LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "head_dim": None,
}

FAMILY = ModelFamily(
    title="Llama 1 to 3.3, Granite, Seed-OSS, Arcee, Hunyuan",
    model_types={
        "llama": _LLAMA,
        "granite": _LLAMA,
        "seed_oss": {
            **_LLAMA,
            "vocab_size": 155_136,
            "intermediate_size": 27_648,
            "num_hidden_layers": 64,
            "num_attention_heads": 80,
            "num_key_value_heads": 8,
            "max_position_embeddings": 524_288,
            "attention_bias": True,
            "attention_out_bias": False,
            "head_dim": 128,
        },
        "arcee": {
            **_LLAMA,
            "hidden_size": 2560,
            "intermediate_size": 18_432,
            "max_position_embeddings": 4096,
        },
        "hunyuan_v1_dense": {name: value for name, value in _LLAMA.items() if name != "mlp_bias"}
        | {"vocab_size": 290_943},
    },
    describe=_describe,
)
