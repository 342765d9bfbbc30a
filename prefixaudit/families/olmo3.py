"""OLMo 2 and 3: norms after the parts, query-key norms over all heads; every fourth layer full.

Source: transformers 5.24, models/olmo2, models/olmo3.
"""

from __future__ import annotations

from prefixaudit.core.model import DenseMlp, LayerSpec, ModelSpec
from prefixaudit.families import ModelFamily
from prefixaudit.families._config import Config
from prefixaudit.families._parts import attention, attention_vectors, model, windowed_kinds
from prefixaudit.families._rotary import local_and_global, position_encoding, rotary


def _describe(config: Config) -> ModelSpec:
    hidden = config.hidden_size
    has_windows = config.model_type == "olmo3"
    kinds = windowed_kinds(
        config, (not has_windows or (index + 1) % 4 == 0 for index in range(config.num_layers))
    )
    window = config.optional_integer("sliding_window") if has_windows else None
    bias = config.flag("attention_bias")
    mlp = DenseMlp(width=config.integer("intermediate_size"))
    layers = {}
    for kind in ("full_attention", "sliding_attention"):
        mixer = attention(config, window=window if kind == "sliding_attention" else None)
        vectors = attention_vectors(mixer, hidden, qkv_bias=bias, output_bias=bias, norms="width")
        layers[kind] = LayerSpec(
            mixers=(mixer,),
            feed_forward=(mlp,),
            num_vector_parameters=2 * hidden + vectors,
            position=kind if has_windows else "default",
        )
    size = attention(config).head_dim
    if has_windows:
        # transformers 5 reads `rope_theta` of an old file for the full layers only.
        named = local_and_global(config, head_dim=size, theta=500_000.0, local_theta=500_000.0)
    else:
        named = (("default", rotary(config, head_dim=size, theta=10_000.0)),)
    return model(config, (layers[kind] for kind in kinds), position_encoding(config, named))


_OLMO2 = {
    "vocab_size": 50_304,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
}

FAMILY = ModelFamily(
    title="OLMo 2 and 3",
    model_types={
        "olmo2": _OLMO2,
        "olmo3": {**_OLMO2, "sliding_window": 4096, "layer_types": None},
    },
    describe=_describe,
)
