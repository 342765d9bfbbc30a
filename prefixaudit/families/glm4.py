"""GLM-4 (dense) and GLM-4.5 to 4.7 (experts): half of each head is rotated.

Source: transformers 5.24, models/glm, glm4, glm4_moe, glm4v_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    deepseek_experts,
    dense_first,
    model,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mixer = attention(config)
    has_experts = config.model_type in ("glm4_moe", "glm4v_moe_text")
    vectors = attention_vectors(
        mixer,
        hidden,
        qkv_bias=config.flag("attention_bias"),
        norms="head" if config.flag("use_qk_norm") else "none",
    )
    # GLM-4 has norms after the parts too.
    num_norms = 4 if config.model_type == "glm4" else 2
    dense = DenseMlp(width=config.integer("intermediate_size"))
    sparse = dense_first(config) if has_experts else (False,) * config.num_layers
    experts = deepseek_experts(config) if any(sparse) else None
    embedding = rotary(config, head_dim=mixer.head_dim, theta=10_000.0, partial=0.5)
    return model(
        config,
        (
            LayerSpec(
                mixers=(mixer,),
                feed_forward=(experts if is_sparse and experts is not None else dense,),
                num_vector_parameters=num_norms * hidden + vectors,
            )
            for is_sparse in sparse
        ),
        position_encoding(config, {"default": embedding}),
    )


_GLM = {
    "vocab_size": 151_552,
    "hidden_size": 4096,
    "intermediate_size": 13_696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
    "attention_bias": True,
}

FAMILY = ModelFamily(
    title="GLM-4, GLM-Z1, GLM-4.5, 4.5V, 4.6 and 4.7",
    model_types={
        "glm": _GLM,
        "glm4": _GLM,
        "glm4_moe": {
            "vocab_size": 151_552,
            "hidden_size": 4096,
            "intermediate_size": 10_944,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "first_k_dense_replace": 1,
            "use_qk_norm": False,
        },
        "glm4v_moe_text": {
            **_GLM,
            "vocab_size": 151_424,
            "intermediate_size": 10_944,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "head_dim": None,
            "max_position_embeddings": 65_536,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "first_k_dense_replace": 1,
        },
    },
    describe=_describe,
    aliases={"num_local_experts": "n_routed_experts"},
    containers={"glm4v_moe": "glm4v_moe_text"},
)
