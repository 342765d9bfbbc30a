"""The cache of a model that no family knows, where its file names all that the size depends on.

Only plain softmax attention is taken, with the fields as transformers' configuration classes use
them. Fields of latent attention, state layers, shared keys or values, or a kind of layer other than
full and windowed make the file one that can't be read without knowing its type.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.core.model import CacheSpec
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention

_REQUIRED: Final = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")

# Fields whose presence says that keys and values are not kept plainly in each layer.
_OTHER_CACHES: Final = (
    "kv_lora_rank",
    "linear_num_key_heads",
    "linear_attn_config",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "conv_L_cache",
    "num_kv_shared_layers",
    "attention_k_eq_v",
    "global_head_dim",
    "per_layer_config",
    "attention_chunk_size",
    "compress_rates",
    "index_head_dim",
    "hybrid_override_pattern",
    "layers_block_type",
    "cross_attention_layers",
)


def explicit_cache(config: Config) -> CacheSpec | None:
    """Return the cache, None where the file doesn't name enough or names something else."""
    if any(config.get(name) is None for name in _REQUIRED):
        return None
    if any(config.get(name) is not None for name in _OTHER_CACHES):
        return None
    kinds = config.names("layer_types", count=config.num_layers)
    window = config.optional_integer("sliding_window")
    if kinds is None:
        if not config.has("sliding_window") or window is not None:
            return None
        kinds = ("full_attention",) * config.num_layers
    if not set(kinds) <= {"full_attention", "sliding_attention"}:
        return None
    if "sliding_attention" in kinds and window is None:
        return None
    mixers = {
        "full_attention": attention(config),
        "sliding_attention": attention(config, window=window),
    }
    return CacheSpec(
        model_type=config.model_type,
        mixers=tuple(mixers[kind] for kind in kinds),
        dtype=config.dtype,
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
    )
