"""DeepSeek V3.2 and GLM-5: latent attention whose keys an indexer selects.

The reference attends densely under a mask; an engine with sparse kernels attends at most
`index_topk` keys a query. In GLM-5 a layer may reuse the selection of an earlier one and then has
no indexer of its own.
Source: transformers 5.24, models/deepseek_v32, models/glm_moe_dsa.
"""

from __future__ import annotations

from dataclasses import replace

from prefixaudit.core.model import DenseMlp, Indexer, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    deepseek_experts,
    dense_first,
    latent_attention,
    latent_vectors,
    model,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    plain = latent_attention(config)
    indexer = Indexer(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )
    vectors = 2 * hidden + latent_vectors(plain, hidden, bias=config.flag("attention_bias"))
    dense = DenseMlp(width=config.integer("intermediate_size"))
    experts = deepseek_experts(config)
    layers = [
        LayerSpec(
            mixers=(replace(plain, indexer=indexer) if has_indexer else plain,),
            feed_forward=(experts if is_sparse else dense,),
            # The indexer's key norm has a weight and a bias.
            num_vector_parameters=vectors + (2 * indexer.head_dim if has_indexer else 0),
        )
        for is_sparse, has_indexer in zip(dense_first(config), _indexed(config), strict=True)
    ]
    embedding = rotary(config, head_dim=plain.rope_head_dim, theta=10_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


def _indexed(config: Config) -> tuple[bool, ...]:
    """Say which layers run an indexer of their own."""
    count = config.num_layers
    if config.model_type != "glm_moe_dsa":
        return (True,) * count
    names = config.names("indexer_types", count=count)
    if names is None and (pattern := config.get("index_topk_pattern")) is not None:
        letters = {"F": "full", "S": "shared"}
        is_list = isinstance(pattern, str | list) and len(pattern) == count
        if not is_list or not all(item in (*letters, *letters.values()) for item in pattern):
            raise config.wrong("index_topk_pattern", pattern, f"{count} of F and S, one a layer,")
        names = tuple(letters.get(item, item) for item in pattern)
    if names is not None:
        return tuple(name == "full" for name in names)
    step = config.optional_integer("index_topk_freq", minimum=0) or 1
    offset = config.optional_integer("index_skip_topk_offset", minimum=0)
    start = 2 if offset is None else offset
    return tuple(max(index - start + 1, 0) % step == 0 for index in range(count))


_DEEPSEEK_V32 = {
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
    "max_position_embeddings": 163_840,
    "tie_word_embeddings": False,
    "mlp_layer_types": None,
    "attention_bias": False,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "first_k_dense_replace": 3,
}

FAMILY = ModelFamily(
    title="DeepSeek V3.2, GLM-5",
    model_types={
        "deepseek_v32": _DEEPSEEK_V32,
        "glm_moe_dsa": {
            **_DEEPSEEK_V32,
            "vocab_size": 154_880,
            "hidden_size": 6144,
            "intermediate_size": 12_288,
            "num_hidden_layers": 78,
            "num_attention_heads": 64,
            "q_lora_rank": 2048,
            "v_head_dim": 256,
            "qk_nope_head_dim": 192,
            "max_position_embeddings": 202_752,
            "index_n_heads": 32,
        },
    },
    describe=_describe,
    aliases={"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"},
)
