"""DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash: latent attention, dense layers first, then experts.

Heads in `num_key_value_heads` mean nothing for the size of the cache: one latent a token is kept.
`kimi_k2` is `deepseek_v3` in form.
Source: transformers 5.24, models/deepseek_v2, deepseek_v3, glm4_moe_lite.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    deepseek_experts,
    dense_first,
    latent_attention,
    latent_vectors,
    mlp_bias_vectors,
    model,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mixer = latent_attention(config)
    width = config.integer("intermediate_size")
    vectors = 2 * hidden + latent_vectors(mixer, hidden, bias=config.flag("attention_bias"))
    dense_vectors = vectors + (mlp_bias_vectors(width, hidden) if config.flag("mlp_bias") else 0)
    dense = LayerSpec(
        mixers=(mixer,), feed_forward=(DenseMlp(width=width),), num_vector_parameters=dense_vectors
    )
    # A null number of experts makes every layer dense.
    has_experts = config.get("n_routed_experts") is not None
    sparse = dense_first(config) if has_experts else (False,) * config.num_layers
    layers = [dense] * config.num_layers
    if any(sparse):
        experts = deepseek_experts(config)
        if config.flag("mlp_bias") and experts.shared_width:
            vectors += mlp_bias_vectors(experts.shared_width, hidden)
        with_experts = LayerSpec(
            mixers=(mixer,), feed_forward=(experts,), num_vector_parameters=vectors
        )
        layers = [with_experts if is_sparse else dense for is_sparse in sparse]
    embedding = rotary(config, head_dim=mixer.rope_head_dim, theta=10_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


_DEEPSEEK_V3 = {
    "vocab_size": 129_280,
    "hidden_size": 7168,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "attention_bias": False,
}

FAMILY = ModelFamily(
    title="DeepSeek V2, V3, R1, Kimi K2, GLM-4.7-Flash",
    model_types={
        "deepseek_v2": {
            **_DEEPSEEK_V3,
            "vocab_size": 102_400,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "moe_intermediate_size": 1407,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "n_shared_experts": 2,
            "n_routed_experts": 64,
            "num_experts_per_tok": None,
            "first_k_dense_replace": 0,
            "max_position_embeddings": 2048,
            "mlp_bias": False,
        },
        "deepseek_v3": _DEEPSEEK_V3,
        "kimi_k2": _DEEPSEEK_V3,
        "glm4_moe_lite": {
            **_DEEPSEEK_V3,
            "vocab_size": 154_880,
            "hidden_size": 2048,
            "intermediate_size": 10_240,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 47,
            "num_attention_heads": 20,
            "n_routed_experts": 64,
            "q_lora_rank": 768,
            "v_head_dim": 256,
            "qk_nope_head_dim": 192,
            "num_experts_per_tok": 4,
            "first_k_dense_replace": 1,
            "max_position_embeddings": 202_752,
            "mlp_layer_types": None,
        },
    },
    describe=_describe,
    aliases={"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"},
)
