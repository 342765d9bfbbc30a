"""What several families share: reading attention and feed-forward shapes, putting a model together.

Parameters that no matrix product touches (norms, biases, …) are counted beside the shapes, since
weights have to fit in memory whether they multiply or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from prefixaudit.core.model import (
    Attention,
    Experts,
    LatentAttention,
    LayerSpec,
    Mamba2,
    ModelSpec,
    PositionEncoding,
    Quantization,
    StateDtype,
)
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.families._config import Config


def num_kv_heads(config: Config, name: str = "num_key_value_heads") -> int:
    """Return the number of key and value heads; null or absent is one a query head."""
    return config.optional_integer(name) or config.integer("num_attention_heads")


def head_dim(config: Config) -> int:
    """Return the size of a head: `head_dim`, or the hidden size by heads where it isn't given."""
    given = config.optional_integer("head_dim")
    if given is not None:
        return given
    hidden, heads = config.hidden_size, config.integer("num_attention_heads")
    if hidden < heads:
        raise config.wrong("num_attention_heads", heads, f"{hidden} (the hidden size) or less")
    return hidden // heads


def attention(
    config: Config,
    *,
    window: int | None = None,
    chunk: int | None = None,
    output_gate: bool = False,
) -> Attention:
    """Return softmax attention with the heads that the file names."""
    return Attention(
        num_heads=config.integer("num_attention_heads"),
        num_kv_heads=num_kv_heads(config),
        head_dim=head_dim(config),
        window=window,
        chunk=chunk,
        output_gate=output_gate,
    )


def attention_vectors(
    mixer: Attention,
    hidden_size: int,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    norms: Literal["none", "head", "width"] = "none",
) -> int:
    """Count biases and query-key norms: norms over one head, or over the width of all heads."""
    query = mixer.num_heads * mixer.head_dim
    key = 0 if mixer.reuses_kv else mixer.num_kv_heads * mixer.head_dim
    num = 0
    if qkv_bias:
        num += query * (2 if mixer.output_gate else 1)
        num += key * (1 if mixer.key_is_value else 2)
    if output_bias:
        num += hidden_size
    if norms == "head":
        num += mixer.head_dim * (1 if mixer.reuses_kv else 2)
    if norms == "width":
        num += query + key
    return num


def latent_attention(config: Config) -> LatentAttention:
    """Return latent attention without an indexer."""
    return LatentAttention(
        num_heads=config.integer("num_attention_heads"),
        q_lora_rank=config.optional_integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_head_dim=config.integer("qk_nope_head_dim"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
    )


def latent_vectors(mixer: LatentAttention, hidden_size: int, *, bias: bool = False) -> int:
    """Count the norms of the latents, and with `bias` the biases of the down projections and o."""
    num = mixer.kv_lora_rank + (mixer.q_lora_rank or 0)
    if bias:
        num += mixer.kv_lora_rank + mixer.rope_head_dim + hidden_size + (mixer.q_lora_rank or 0)
    return num


def mlp_bias_vectors(width: int, hidden_size: int, *, gated: bool = True) -> int:
    """Count the biases of one feed-forward part."""
    return width * (2 if gated else 1) + hidden_size


def sparse_layers(config: Config, *, num_experts: int | None) -> tuple[bool, ...]:
    """Say which layers have experts, by `decoder_sparse_step` and `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step")
    dense = config.integers("mlp_only_layers") or ()
    return tuple(
        index not in dense and bool(num_experts) and (index + 1) % step == 0
        for index in range(config.num_layers)
    )


def dense_first(config: Config) -> tuple[bool, ...]:
    """Say which layers have experts: by `mlp_layer_types`, or after `first_k_dense_replace`."""
    kinds = config.names("mlp_layer_types", count=config.num_layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in ("dense", "sparse"):
                raise config.wrong("mlp_layer_types", kind, "dense or sparse")
        return tuple(kind == "sparse" for kind in kinds)
    first = config.integer("first_k_dense_replace", minimum=0)
    step = config.optional_integer("moe_layer_freq") or 1
    return tuple(index >= first and index % step == 0 for index in range(config.num_layers))


def deepseek_experts(config: Config) -> Experts:
    """Return experts in DeepSeek's names: shared experts are as wide as routed ones."""
    width = config.integer("moe_intermediate_size")
    shared = config.optional_integer("n_shared_experts", minimum=0) or 0
    return Experts(
        num_experts=config.integer("n_routed_experts"),
        num_per_token=config.integer("num_experts_per_tok"),
        width=width,
        shared_width=shared * width,
    )


def windowed_kinds(
    config: Config, full: Iterable[bool]
) -> tuple[Literal["full_attention", "sliding_attention"], ...]:
    """Return the kind of each layer: `layer_types`, or where `full` says so full attention."""
    given = config.kinds(("full_attention", "sliding_attention"))
    if given is None:
        given = tuple("full_attention" if flag else "sliding_attention" for flag in full)
    return tuple(
        "full_attention" if kind == "full_attention" else "sliding_attention" for kind in given
    )


def rotary_layers(config: Config) -> tuple[bool, ...]:
    """Say which layers have a rotary embedding: `no_rope_layers` lists 1 for those that do."""
    given = config.integers("no_rope_layers")
    if not given:
        step = config.integer("no_rope_layer_interval")
        return tuple((index + 1) % step != 0 for index in range(config.num_layers))
    if len(given) != config.num_layers:
        raise config.wrong("no_rope_layers", given, f"a list of {config.num_layers} flags")
    return tuple(bool(flag) for flag in given)


def mamba2_vectors(
    mixer: Mamba2,
    hidden_size: int,
    *,
    conv_bias: bool,
    input_bias: bool,
    output_bias: bool,
    norm: bool = True,
) -> int:
    """Count a Mamba-2 mixer's decays, time steps, skips, norm and biases."""
    shared = 2 * mixer.num_groups * mixer.state_size
    num = 3 * mixer.num_heads + (mixer.inner if norm else 0)
    if conv_bias:
        num += mixer.inner + shared
    if input_bias:
        num += 2 * mixer.inner + shared + mixer.num_heads
    if output_bias:
        num += hidden_size
    return num


def state_dtype(config: Config, name: str) -> StateDtype:
    """Return the type of recurrent states by the field `name`; without one it's the model's."""
    match config.text(name):
        case None | "auto":
            return "model"
        case "float32" | "torch.float32":
            return "float32"
        case "bfloat16":
            return "bfloat16"
        case "float16":
            return "float16"
        case other:
            raise config.wrong(name, other, "float32, bfloat16 or float16")


def quantization(config: Config) -> Quantization | None:
    """Return how the weights are quantized, by `quantization_config` of either level."""
    given = config.either_level("quantization_config")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise config.wrong("quantization_config", given, "an object")
    method = str(given.get("quant_method", "unknown"))
    return Quantization(method=method, weight_bits=_weight_bits(method, given))


def _weight_bits(method: str, given: Mapping[str, Any]) -> int | Unknown:
    bits = given.get("bits", given.get("w_bit"))
    if isinstance(bits, int):
        return bits
    algorithm = str(given.get("quant_algo", given.get("fmt", ""))).lower()
    groups = given.get("config_groups")
    if isinstance(groups, Mapping):
        found = {
            group["weights"].get("num_bits")
            for group in groups.values()
            if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
        }
        if len(found) == 1 and isinstance(number := found.pop(), int):
            return number
    if given.get("load_in_4bit") is True or "fp4" in method or "fp4" in algorithm:
        return 4
    if given.get("load_in_8bit") is True or "fp8" in method or "fp8" in algorithm:
        return 8
    return UNKNOWN


def model(
    config: Config,
    layers: Iterable[LayerSpec],
    position: PositionEncoding,
    *,
    num_vector_parameters: int | None = None,
    state_dtype: StateDtype = "model",
    per_layer_vocab_size: int = 0,
    notes: tuple[str, ...] = (),
) -> ModelSpec:
    """Put a model together; by default a final norm is its only vector outside the layers."""
    hidden_size = config.hidden_size
    drafts = [
        config.optional_integer(name, minimum=0)
        for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    ]
    return ModelSpec(
        model_type=config.model_type,
        family=config.family,
        hidden_size=hidden_size,
        vocab_size=config.integer("vocab_size"),
        tied_embeddings=config.tied_embeddings,
        layers=tuple(layers),
        position=position,
        dtype=config.dtype,
        quantization=quantization(config),
        num_vector_parameters=(
            hidden_size if num_vector_parameters is None else num_vector_parameters
        ),
        per_layer_vocab_size=per_layer_vocab_size,
        state_dtype=state_dtype,
        num_draft_layers=next((number for number in drafts if number is not None), 0),
        notes=notes,
    )
