"""Jamba: Mamba-1 layers, every eighth one attention (without rotary), experts in every second one.

Source: transformers 5.24, models/jamba.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, Experts, LayerSpec, Mamba1, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, model
from prefixaudit.families._rotary import position_encoding


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    mamba = Mamba1(
        inner=config.integer("mamba_expand") * hidden,
        state_size=config.integer("mamba_d_state"),
        time_step_rank=_time_step_rank(config),
        conv_kernel=config.integer("mamba_d_conv"),
    )
    full = attention(config)
    experts = Experts(
        num_experts=config.integer("num_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
    )
    dense = DenseMlp(width=config.integer("intermediate_size"))
    layers = []
    for index in range(config.num_layers):
        is_full = _is_at(config, index, "attn_layer_period", "attn_layer_offset")
        is_sparse = experts.num_experts > 1 and _is_at(
            config, index, "expert_layer_period", "expert_layer_offset"
        )
        layers.append(
            LayerSpec(
                mixers=(full if is_full else mamba,),
                feed_forward=(experts if is_sparse else dense,),
                num_vector_parameters=2 * hidden
                + (0 if is_full else _mamba_vectors(config, mamba)),
                position=None,
            )
        )
    return model(config, layers, position_encoding(config, {}))


def _is_at(config: Config, index: int, period: str, offset: str) -> bool:
    return index % config.integer(period) == config.integer(offset, minimum=0)


def _time_step_rank(config: Config) -> int:
    if config.get("mamba_dt_rank") == "auto":
        return -(-config.hidden_size // 16)
    return config.integer("mamba_dt_rank")


def _mamba_vectors(config: Config, mamba: Mamba1) -> int:
    # A (a matrix that no product meets), D, the time step's bias; norms of time step, B and C.
    num = mamba.inner * mamba.state_size + 2 * mamba.inner
    num += mamba.time_step_rank + 2 * mamba.state_size
    if config.flag("mamba_conv_bias", default=True):
        num += mamba.inner
    if config.flag("mamba_proj_bias"):
        num += 2 * mamba.inner + config.hidden_size
    return num


FAMILY = ModelFamily(
    title="Jamba",
    model_types={
        "jamba": {
            "vocab_size": 65_536,
            "tie_word_embeddings": False,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 262_144,
            "num_experts_per_tok": 2,
            "num_experts": 16,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": "auto",
            "mamba_conv_bias": True,
            "mamba_proj_bias": False,
        }
    },
    describe=_describe,
    aliases={"num_local_experts": "num_experts"},
)
