"""Nemotron-H and Nemotron 3: one part a layer: Mamba-2 (M), experts (E), attention (*) or MLP (-).

MLPs and experts have no gate (squared ReLU), attention has no rotary embedding. The number of
layers is that of the pattern. The recurrent state is float32 unless the file says otherwise.
Source: transformers 5.24, models/nemotron_h.
"""

from __future__ import annotations

from prefixaudit.core.model import (
    DenseMlp,
    Experts,
    FeedForward,
    LayerSpec,
    Mamba2,
    Mixer,
    ModelSpec,
)
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import (
    attention,
    mamba2_vectors,
    mlp_bias_vectors,
    model,
    state_dtype,
)
from prefixaudit.families._rotary import position_encoding

_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_OLD_NAMES = {"mamba": "linear_attention", "attention": "full_attention"}


def _describe(config: Config) -> ModelSpec:
    kinds = _kinds(config)
    layers = {kind: _layer(config, kind) for kind in set(kinds)}
    return model(
        config,
        (layers[kind] for kind in kinds),
        position_encoding(config, {}),
        state_dtype=state_dtype(config, "mamba_ssm_cache_dtype"),
    )


def _kinds(config: Config) -> tuple[str, ...]:
    names = config.names("layers_block_type")
    if names is None and (pattern := config.text("hybrid_override_pattern")) is not None:
        names = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    if names is None:
        names = ("linear_attention", "moe", "full_attention", "mlp")
    names = tuple(_OLD_NAMES.get(name, name) for name in names)
    for name in names:
        if name not in _LETTERS.values():
            raise config.wrong("layers_block_type", name, f"one of {', '.join(_LETTERS.values())}")
    return names


def _layer(config: Config, kind: str) -> LayerSpec:
    hidden = config.hidden_size
    mixers: tuple[Mixer, ...] = ()
    parts: tuple[FeedForward, ...] = ()
    vectors = hidden
    match kind:
        case "linear_attention":
            mamba = Mamba2(
                inner=config.integer("mamba_num_heads") * config.integer("mamba_head_dim"),
                state_size=config.integer("ssm_state_size"),
                num_groups=config.integer("n_groups"),
                num_heads=config.integer("mamba_num_heads"),
                conv_kernel=config.integer("conv_kernel"),
            )
            mixers = (mamba,)
            bias = config.flag("use_bias")
            vectors += mamba2_vectors(
                mamba,
                hidden,
                conv_bias=config.flag("use_conv_bias", default=True),
                input_bias=bias,
                output_bias=bias,
            )
        case "full_attention":
            mixers = (attention(config, window=config.optional_integer("sliding_window")),)
        case "mlp":
            width = config.integer("intermediate_size")
            parts = (DenseMlp(width=width, gated=False),)
            if config.flag("mlp_bias"):
                vectors += mlp_bias_vectors(width, hidden, gated=False)
        case "moe":
            experts = Experts(
                num_experts=config.integer("n_routed_experts"),
                num_per_token=config.integer("num_experts_per_tok"),
                width=config.integer("moe_intermediate_size"),
                gated=False,
                shared_width=config.integer("moe_shared_expert_intermediate_size"),
                latent_width=config.optional_integer("moe_latent_size"),
            )
            parts = (experts,)
            if config.flag("mlp_bias"):
                vectors += mlp_bias_vectors(experts.shared_width, hidden, gated=False)
                vectors += hidden + experts.latent_width if experts.latent_width else 0
    return LayerSpec(
        mixers=mixers, feed_forward=parts, num_vector_parameters=vectors, position=None
    )


FAMILY = ModelFamily(
    title="Nemotron-H, Nemotron 3",
    model_types={
        "nemotron_h": {
            "vocab_size": 131_072,
            "hidden_size": 4096,
            "layers_block_type": None,
            "tie_word_embeddings": False,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "sliding_window": None,
            "intermediate_size": 21_504,
            "mlp_bias": False,
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
            "use_conv_bias": True,
            "use_bias": False,
            "mamba_ssm_cache_dtype": "float32",
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688,
            "moe_latent_size": None,
        }
    },
    describe=_describe,
    aliases={"layer_types": "layers_block_type"},
    superseding={
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
    },
)
