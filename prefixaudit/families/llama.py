"""Llama and the decoders that are Llama in all but name: dense, full attention, gated MLP.

Source: transformers 5.24, models/llama (LlamaConfig, LlamaForCausalLM).
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
    vectors = 2 * hidden + attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
    if config.flag("mlp_bias"):
        vectors += mlp_bias_vectors(width, hidden)
    layer = LayerSpec(
        mixers=(mixer,), feed_forward=(DenseMlp(width=width),), num_vector_parameters=vectors
    )
    embedding = rotary(config, head_dim=mixer.head_dim, theta=10_000.0)
    return model(
        config,
        "llama",
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
    title="Llama 1 to 3.3, Granite (dense)",
    model_types={"llama": _LLAMA, "granite": _LLAMA},
    describe=_describe,
)
