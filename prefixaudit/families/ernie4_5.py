"""ERNIE 4.5, dense and with experts, under names of its own (`moe_k`, `moe_num_experts`, …).

Source: transformers 5.24, models/ernie4_5, models/ernie4_5_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, mlp_bias_vectors, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mixer = attention(config)
    bias = config.flag("use_bias")
    width = config.integer("intermediate_size")
    vectors = 2 * hidden + attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias)
    dense = LayerSpec(
        mixers=(mixer,),
        feed_forward=(DenseMlp(width=width),),
        num_vector_parameters=vectors + (mlp_bias_vectors(width, hidden) if bias else 0),
    )
    layers = [dense] * config.num_layers
    head_bias = 0
    if config.model_type == "ernie4_5_moe":
        sparse = _sparse_layer(config, dense, vectors=vectors, bias=bias)
        layers = [sparse if is_sparse else dense for is_sparse in _sparse(config)]
        head_bias = config.integer("vocab_size") if bias else 0
    embedding = rotary(config, head_dim=mixer.head_dim, theta=500_000.0)
    return model(
        config,
        layers,
        position_encoding(config, {"default": embedding}),
        num_vector_parameters=hidden + head_bias,
    )


def _sparse_layer(config: Config, dense: LayerSpec, *, vectors: int, bias: bool) -> LayerSpec:
    hidden = config.hidden_size
    width = config.integer("moe_intermediate_size")
    shared = config.integer("moe_num_shared_experts", minimum=0) * width
    experts = Experts(
        num_experts=config.integer("moe_num_experts"),
        num_per_token=config.integer("moe_k"),
        width=width,
        shared_width=shared,
    )
    if bias and shared:
        vectors += mlp_bias_vectors(shared, hidden)
    return LayerSpec(
        mixers=dense.mixers,
        feed_forward=(experts,),
        # One correction an expert beside the router.
        num_vector_parameters=vectors + experts.num_experts,
    )


def _sparse(config: Config) -> tuple[bool, ...]:
    last = config.integer("moe_layer_end_index", minimum=-1)
    last = config.num_layers - 1 if last == -1 else last
    first = config.integer("moe_layer_start_index", minimum=0)
    step = config.integer("moe_layer_interval")
    return tuple(
        (index + 1) % step == 0 and first <= index <= last for index in range(config.num_layers)
    )


FAMILY = ModelFamily(
    title="ERNIE 4.5",
    model_types={
        "ernie4_5": {
            "vocab_size": 103_424,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 18,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
            "use_bias": False,
            "head_dim": 128,
        },
        "ernie4_5_moe": {
            "vocab_size": 103_424,
            "hidden_size": 2560,
            "intermediate_size": 12_288,
            "num_hidden_layers": 28,
            "num_attention_heads": 20,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
            "use_bias": False,
            "moe_intermediate_size": 1536,
            "moe_k": 6,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
        },
    },
    describe=_describe,
    aliases={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
)
