"""LFM2: short gated convolutions with a few layers of attention between them.

`intermediate_size` is rounded as Llama's first code did unless `block_auto_adjust_ff_dim` is off.
Source: transformers 5.24, models/lfm2, models/lfm2_moe.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, ModelSpec, ShortConvolution
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    full = attention(config)
    convolution = ShortConvolution(inner=hidden, conv_kernel=config.integer("conv_L_cache"))
    # Biases of the projections in and out and of the convolution.
    conv_vectors = 5 * hidden if config.flag("conv_bias") else 0
    full_vectors = attention_vectors(full, hidden, norms="head")
    dense = DenseMlp(width=_width(config))
    has_experts = config.model_type == "lfm2_moe"
    num_dense = config.integer("num_dense_layers", minimum=0) if has_experts else config.num_layers
    experts = dense if not has_experts else _experts(config)
    layers = []
    for index, kind in enumerate(_kinds(config)):
        is_full = kind == "full_attention"
        layers.append(
            LayerSpec(
                mixers=(full if is_full else convolution,),
                feed_forward=(dense if index < num_dense else experts,),
                num_vector_parameters=2 * hidden + (full_vectors if is_full else conv_vectors),
                position="default" if is_full else None,
            )
        )
    embedding = rotary(config, head_dim=full.head_dim, theta=1_000_000.0)
    return model(config, layers, position_encoding(config, {"default": embedding}))


def _kinds(config: Config) -> tuple[str, ...]:
    kinds = config.kinds(("full_attention", "conv"))
    if kinds is not None:
        return kinds
    indices = config.integers("full_attn_idxs")
    if indices is None:
        if config.model_type == "lfm2_moe":
            raise config.wrong("layer_types", None, "a list of names, one a layer,")
        indices = tuple(range(config.num_layers))
    return tuple(
        "full_attention" if index in indices else "conv" for index in range(config.num_layers)
    )


def _width(config: Config) -> int:
    width = config.integer("intermediate_size")
    if config.model_type == "lfm2_moe" or not config.flag("block_auto_adjust_ff_dim"):
        return width
    width = int(2 * width / 3)
    if config.get("block_ffn_dim_multiplier") is None:
        return width
    factor = config.number("block_ffn_dim_multiplier", 1.0)
    multiple = config.integer("block_multiple_of")
    return multiple * -(-int(factor * width) // multiple)


def _experts(config: Config) -> Experts:
    return Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
    )


_LFM2 = {
    "vocab_size": 65_536,
    "hidden_size": 2560,
    "intermediate_size": 12_288,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128_000,
    "tie_word_embeddings": True,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_multiple_of": 256,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True,
    "full_attn_idxs": None,
    "layer_types": None,
}

FAMILY = ModelFamily(
    title="LFM2",
    model_types={
        "lfm2": _LFM2,
        "lfm2_moe": {
            **_LFM2,
            "hidden_size": 2048,
            "intermediate_size": 7168,
            "moe_intermediate_size": 1792,
            "num_dense_layers": 2,
            "num_experts_per_tok": 4,
            "num_experts": 32,
        },
    },
    describe=_describe,
    superseding={"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"},
)
