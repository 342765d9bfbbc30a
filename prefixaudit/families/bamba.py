"""Bamba and Granite 4 hybrids: Mamba-2 layers with a few of attention between them.

Granite has routed and shared experts in every layer (none routed in the dense ones).
Source: transformers 5.24, models/bamba, granitemoe, granitemoeshared, granitemoehybrid.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, Mamba2, Mixer, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    attention_vectors,
    mamba2_vectors,
    mlp_bias_vectors,
    model,
    state_dtype,
)
from prefixaudit.families._rotary import position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    full = attention(config)
    bias = config.flag("attention_bias")
    mixers: dict[str, tuple[Mixer, int]] = {
        "full_attention": (
            full,
            attention_vectors(full, hidden, qkv_bias=bias, output_bias=bias),
        )
    }
    kinds = _kinds(config)
    if "linear_attention" in kinds:
        mamba = _mamba(config)
        proj_bias = config.flag("mamba_proj_bias")
        vectors = mamba2_vectors(
            mamba,
            hidden,
            conv_bias=config.flag("mamba_conv_bias", default=True),
            input_bias=proj_bias,
            output_bias=proj_bias,
        )
        mixers["linear_attention"] = (mamba, vectors)
    is_bamba = config.model_type == "bamba"
    parts: tuple[DenseMlp | Experts, ...] = _feed_forward(config)
    part_vectors = 0
    if is_bamba and config.flag("mlp_bias"):
        part_vectors = mlp_bias_vectors(config.integer("intermediate_size"), hidden)
    has_rotary = is_bamba or config.model_type in ("granitemoe", "granitemoeshared")
    has_rotary = has_rotary or config.text("position_embedding_type") == "rope"
    layers = [
        LayerSpec(
            mixers=(mixers[kind][0],),
            feed_forward=parts,
            num_vector_parameters=2 * hidden + mixers[kind][1] + part_vectors,
            position="default" if has_rotary and kind == "full_attention" else None,
        )
        for kind in kinds
    ]
    partial = 0.5 if is_bamba else 1.0
    embedding = rotary(config, head_dim=full.head_dim, theta=10_000.0, partial=partial)
    return model(
        config,
        layers,
        position_encoding(config, {"default": embedding} if has_rotary else {}),
        state_dtype=state_dtype(config, "mamba_ssm_dtype"),
    )


def _kinds(config: Config) -> tuple[str, ...]:
    count = config.num_layers
    if config.model_type in ("granitemoe", "granitemoeshared"):
        return ("full_attention",) * count
    if config.model_type == "bamba":
        full = config.integers("attn_layer_indices") or ()
        return tuple(
            "full_attention" if index in full else "linear_attention" for index in range(count)
        )
    kinds = config.kinds(
        ("full_attention", "linear_attention"),
        {"mamba": "linear_attention", "attention": "full_attention"},
    )
    return kinds if kinds is not None else ("linear_attention",) * count


def _mamba(config: Config) -> Mamba2:
    return Mamba2(
        inner=config.integer("mamba_expand") * config.hidden_size,
        state_size=config.integer("mamba_d_state"),
        num_groups=config.integer("mamba_n_groups"),
        num_heads=config.integer("mamba_n_heads"),
        conv_kernel=config.integer("mamba_d_conv"),
    )


def _feed_forward(config: Config) -> tuple[DenseMlp | Experts, ...]:
    width = config.integer("intermediate_size")
    if config.model_type == "bamba":
        return (DenseMlp(width=width),)
    shared = 0
    if config.model_type != "granitemoe":
        shared = config.optional_integer("shared_intermediate_size", minimum=0) or 0
    num_experts = config.optional_integer("num_local_experts", minimum=0) or 0
    if not num_experts:
        return (DenseMlp(width=shared),)
    return (
        Experts(
            num_experts=num_experts,
            num_per_token=config.integer("num_experts_per_tok"),
            width=width,
            shared_width=shared,
        ),
    )


_GRANITE_MOE = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_MAMBA = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
}

FAMILY = ModelFamily(
    title="Bamba, Granite 3 (experts) and 4",
    model_types={
        "bamba": {
            **_MAMBA,
            "vocab_size": 128_000,
            "tie_word_embeddings": False,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 262_144,
            "attn_layer_indices": None,
            "attention_bias": False,
            "mlp_bias": False,
        },
        "granitemoe": _GRANITE_MOE,
        "granitemoeshared": {**_GRANITE_MOE, "shared_intermediate_size": 0},
        "granitemoehybrid": {
            **_GRANITE_MOE,
            **_MAMBA,
            "shared_intermediate_size": 1024,
            "position_embedding_type": None,
            "layer_types": None,
        },
    },
    describe=_describe,
    aliases={"layers_block_type": "layer_types"},
)
