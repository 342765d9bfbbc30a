"""Gemma 4: wider heads on full layers, keys used as values, shared keys, per-layer inputs, experts.

The last `num_kv_shared_layers` layers have no keys and values of their own: they read those of the
last earlier layer of their kind. Experts come in addition to the dense MLP of the same layer.
Source: transformers 5.24, models/gemma4 (Gemma4TextConfig, Gemma4TextDecoderLayer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.core.model import Attention, DenseMlp, Experts, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention_vectors, model, num_kv_heads, windowed_kinds
from prefixaudit.families._rotary import position_encoding, rotary, rotary_by_layer_type


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    num_layers = config.num_layers
    kinds = windowed_kinds(config, ((index + 1) % 6 == 0 for index in range(num_layers)))
    # transformers forces the last layer to full attention.
    kinds = (*kinds[:-1], "full_attention")
    num_shared = config.integer("num_kv_shared_layers", minimum=0)
    per_layer = config.optional_integer("hidden_size_per_layer_input", minimum=0) or 0
    layers = tuple(
        _layer(
            config,
            index,
            kind,
            reuses_kv=index >= num_layers - num_shared,
            per_layer_input=per_layer,
        )
        for index, kind in enumerate(kinds)
    )
    head_dims: dict[str, int] = {
        kind: layer.mixers[0].head_dim
        for kind, layer in zip(kinds, layers, strict=True)
        if isinstance(layer.mixers[0], Attention)
    }
    embeddings = rotary_by_layer_type(
        config,
        head_dims=head_dims,
        thetas={"full_attention": 1_000_000.0, "sliding_attention": 10_000.0},
    )
    if embeddings is None:
        embeddings = tuple(
            (kind, rotary(config, head_dim=size, theta=10_000.0, parameters=_DEFAULT_ROTARY[kind]))
            for kind, size in head_dims.items()
        )
    return model(
        config,
        layers,
        position_encoding(config, embeddings),
        # The final norm, and the norm of the per-layer inputs.
        num_vector_parameters=hidden + per_layer,
        per_layer_vocab_size=config.integer("vocab_size_per_layer_input") if per_layer else 0,
    )


def _layer(
    config: Config, index: int, kind: str, *, reuses_kv: bool, per_layer_input: int
) -> LayerSpec:
    hidden = config.hidden_size
    is_full = kind == "full_attention"
    kv_heads, head_dim = num_kv_heads(config), config.integer("head_dim")
    key_is_value = config.flag("attention_k_eq_v")
    # transformers 5 writes `per_layer_config` instead of the global values, be it empty.
    if is_full and not config.has("per_layer_config"):
        head_dim = config.integer("global_head_dim")
        if key_is_value:
            kv_heads = config.optional_integer("num_global_key_value_heads") or kv_heads
    override = _override(config, index)
    mixer = Attention(
        num_heads=config.integer("num_attention_heads"),
        num_kv_heads=override.get("num_key_value_heads") or kv_heads,
        head_dim=override.get("head_dim") or head_dim,
        window=None if is_full else config.integer("sliding_window"),
        key_is_value=is_full and key_is_value,
        reuses_kv=reuses_kv,
    )
    bias = config.flag("attention_bias")
    vectors = 4 * hidden
    vectors += attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias, norms="head")
    width = config.integer("intermediate_size")
    if reuses_kv and config.flag("use_double_wide_mlp"):
        width *= 2
    parts: list[DenseMlp | Experts] = [DenseMlp(width=width)]
    if config.flag("enable_moe_block"):
        experts = Experts(
            num_experts=config.integer("num_experts"),
            num_per_token=config.integer("top_k_experts"),
            width=config.integer("moe_intermediate_size"),
        )
        parts.append(experts)
        # Three more norms; the router's scale and one scale an expert.
        vectors += 3 * hidden + hidden + experts.num_experts
    if per_layer_input:
        vectors += hidden
    return LayerSpec(
        mixers=(mixer,),
        feed_forward=tuple(parts),
        num_vector_parameters=vectors,
        per_layer_input=per_layer_input,
        position=kind,
    )


def _override(config: Config, index: int) -> dict[str, Any]:
    """Return what `per_layer_config` (transformers 5) changes in a layer."""
    table = config.table("per_layer_config") or {}
    for number, given in table.items():
        # Numbers are padded with zeros.
        if str(number).isdigit() and int(number) == index and isinstance(given, Mapping):
            return dict(given)
    return {}


_DEFAULT_ROTARY = {
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1_000_000.0,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}

FAMILY = ModelFamily(
    title="Gemma 4",
    model_types={
        "gemma4_text": {
            "vocab_size": 262_144,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 30,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "num_global_key_value_heads": None,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "sliding_window": 512,
            "layer_types": None,
            "vocab_size_per_layer_input": 262_144,
            "hidden_size_per_layer_input": 256,
            "attention_k_eq_v": False,
            "num_kv_shared_layers": 0,
            "enable_moe_block": False,
            "use_double_wide_mlp": False,
        }
    },
    describe=_describe,
    containers={"gemma4": "gemma4_text"},
)
