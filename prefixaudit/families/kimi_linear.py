"""Kimi-Linear: Kimi delta attention in most layers, latent attention in the rest, experts.

Positions come from the delta layers: latent attention has no rotary embedding. The recurrent state
is float32. Published files keep the shape of the delta layers in `linear_attn_config`, whose layer
numbers count from 1.
Source: transformers 5.24, models/kimi_linear.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, KimiDelta, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import dense_first, latent_attention, latent_vectors, model
from prefixaudit.families._rotary import position_encoding


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    latent = latent_attention(config)
    nested = Config(
        config.model_type,
        config.table("linear_attn_config") or {},
        defaults={
            "num_heads": config.get("linear_num_heads"),
            "head_dim": config.get("linear_head_dim"),
            "short_conv_kernel_size": config.get("linear_conv_kernel_dim"),
        },
    )
    delta = KimiDelta(
        num_heads=nested.integer("num_heads"),
        head_dim=nested.integer("head_dim"),
        conv_kernel=nested.integer("short_conv_kernel_size"),
    )
    # A time step a channel, a decay a head, the norm of one head.
    delta_vectors = delta.num_heads * delta.head_dim + delta.num_heads + delta.head_dim
    full_vectors = latent_vectors(latent, hidden, bias=config.flag("attention_bias"))
    width = config.integer("moe_intermediate_size")
    shared = config.optional_integer("num_shared_experts", minimum=0) or 0
    experts = Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_token"),
        width=width,
        shared_width=shared * width,
    )
    dense = DenseMlp(width=config.integer("intermediate_size"))
    layers = [
        LayerSpec(
            mixers=(latent if kind == "full_attention" else delta,),
            feed_forward=(experts if is_sparse else dense,),
            num_vector_parameters=2 * hidden
            + (full_vectors if kind == "full_attention" else delta_vectors),
            position=None,
        )
        for kind, is_sparse in zip(_kinds(config), dense_first(config), strict=True)
    ]
    return model(config, layers, position_encoding(config, {}), state_dtype="float32")


def _kinds(config: Config) -> tuple[str, ...]:
    kinds = config.kinds(("linear_attention", "full_attention"))
    if kinds is not None:
        return kinds
    nested = Config(config.model_type, config.table("linear_attn_config") or {}, defaults={})
    full, linear = nested.integers("full_attn_layers"), nested.integers("kda_layers")
    if full is not None and linear is not None:
        if sorted(full + linear) != list(range(1, config.num_layers + 1)):
            raise config.wrong("linear_attn_config", full, "each layer in one of two lists")
        return tuple(
            "full_attention" if index + 1 in full else "linear_attention"
            for index in range(config.num_layers)
        )
    return tuple(
        "full_attention" if index and index % 4 == 0 else "linear_attention"
        for index in range(config.num_layers)
    )


FAMILY = ModelFamily(
    title="Kimi-Linear",
    model_types={
        "kimi_linear": {
            "vocab_size": 163_840,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "moe_intermediate_size": 1024,
            "num_hidden_layers": 27,
            "num_attention_heads": 32,
            "num_shared_experts": 1,
            "kv_lora_rank": 512,
            "q_lora_rank": None,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "qk_nope_head_dim": 128,
            "num_experts_per_token": 8,
            "max_position_embeddings": 1_048_576,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "num_experts": 256,
            "mlp_layer_types": None,
            "first_k_dense_replace": 1,
            "layer_types": None,
            "linear_head_dim": 128,
            "linear_num_heads": 32,
            "linear_conv_kernel_dim": 4,
        }
    },
    describe=_describe,
    aliases={
        "num_local_experts": "num_experts",
        "num_experts_per_tok": "num_experts_per_token",
        "n_shared_experts": "num_shared_experts",
        "model_max_length": "max_position_embeddings",
    },
)
