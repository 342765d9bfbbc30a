"""Parameters of a model by the part they belong to, and their bytes.

Shapes follow the modules of transformers 5.24 (the `modeling_*.py` of each family); the totals are
those of the text model with tied weights counted once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, assert_never

from prefixaudit.core.model import (
    Attention,
    DenseMlp,
    Experts,
    FeedForward,
    GatedDelta,
    KimiDelta,
    LatentAttention,
    LayerSpec,
    Mamba1,
    Mamba2,
    Mixer,
    ModelSpec,
    ShortConvolution,
)
from prefixaudit.core.unknown import UNKNOWN

_DTYPE_BYTES: Final = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0}


def mixer_weights(mixer: Mixer, hidden_size: int) -> Mapping[str, int]:
    """Return the elements of a mixer's matrices and convolutions, by FLOP component."""
    hidden = hidden_size
    match mixer:
        case Attention():
            query = mixer.num_heads * mixer.head_dim
            key = mixer.num_kv_heads * mixer.head_dim
            own_kv = 0 if mixer.reuses_kv else key * (1 if mixer.key_is_value else 2)
            gate = query if mixer.output_gate else 0
            return {"attn_proj": hidden * (2 * query + gate + own_kv)}
        case LatentAttention():
            return _latent_weights(mixer, hidden)
        case GatedDelta():
            key = mixer.num_key_heads * mixer.key_head_dim
            value = mixer.num_value_heads * mixer.value_head_dim
            # q, k; v and the output gate z; beta and alpha a value head; o.
            projections = hidden * (2 * key + 2 * value + 2 * mixer.num_value_heads)
            return {
                "lin_proj": projections + value * hidden,
                "conv": (2 * key + value) * mixer.conv_kernel,
            }
        case KimiDelta():
            inner = mixer.num_heads * mixer.head_dim
            # q, k, v, o; the decay's and the output's gate, each through head_dim; beta a head.
            gates = 2 * (hidden * mixer.head_dim + mixer.head_dim * inner)
            return {
                "lin_proj": 4 * hidden * inner + gates + hidden * mixer.num_heads,
                "conv": 3 * inner * mixer.conv_kernel,
            }
        case Mamba1():
            inner, state, rank = mixer.inner, mixer.state_size, mixer.time_step_rank
            projections = 2 * hidden * inner + inner * (rank + 2 * state) + rank * inner
            return {
                "lin_proj": projections + inner * hidden,
                "conv": inner * mixer.conv_kernel,
            }
        case Mamba2():
            inner, shared = mixer.inner, 2 * mixer.num_groups * mixer.state_size
            return {
                "lin_proj": hidden * (2 * inner + shared + mixer.num_heads) + inner * hidden,
                "conv": (inner + shared) * mixer.conv_kernel,
            }
        case ShortConvolution():
            return {
                "lin_proj": hidden * 3 * mixer.inner + mixer.inner * hidden,
                "conv": mixer.inner * mixer.conv_kernel,
            }
        case _:
            assert_never(mixer)


def _latent_weights(mixer: LatentAttention, hidden: int) -> Mapping[str, int]:
    query = mixer.num_heads * (mixer.nope_head_dim + mixer.rope_head_dim)
    rank = mixer.q_lora_rank
    down_up = hidden * query if rank is None else hidden * rank + rank * query
    latent = hidden * (mixer.kv_lora_rank + mixer.rope_head_dim)
    output = mixer.num_heads * mixer.value_head_dim * hidden
    expanded = mixer.num_heads * (mixer.nope_head_dim + mixer.value_head_dim)
    weights = {
        "attn_proj": down_up + latent + output,
        "mla_kv_up": mixer.kv_lora_rank * expanded,
    }
    if (indexer := mixer.indexer) is not None:
        # Queries come from the query latent; keys and head weights from the hidden state.
        source = rank if rank is not None else hidden
        weights["indexer_proj"] = (
            source * indexer.num_heads * indexer.head_dim
            + hidden * indexer.head_dim
            + hidden * indexer.num_heads
        )
    return weights


def feed_forward_weights(part: FeedForward, hidden_size: int) -> Mapping[str, int]:
    """Return the elements of a feed-forward part's matrices, all experts, by FLOP component."""
    match part:
        case DenseMlp():
            return {"dense_mlp": (3 if part.gated else 2) * hidden_size * part.width}
        case Experts():
            matrices = 3 if part.gated else 2
            ends = part.latent_width or hidden_size
            weights = {
                "router": hidden_size * part.num_experts,
                "experts": part.num_experts * matrices * ends * part.width,
            }
            if part.latent_width is not None:
                # Down to the experts' width and back, once a token whatever the experts are.
                weights["dense_mlp"] = 2 * hidden_size * part.latent_width
            if part.shared_width:
                weights["shared"] = matrices * hidden_size * part.shared_width
            if part.shared_gate:
                weights["shared_gate"] = hidden_size
            return weights
        case _:
            assert_never(part)


def layer_weights(layer: LayerSpec, hidden_size: int) -> Mapping[str, int]:
    """Return the elements of a layer's matrices by FLOP component."""
    weights: dict[str, int] = defaultdict(int)
    for mixer in layer.mixers:
        for name, number in mixer_weights(mixer, hidden_size).items():
            weights[name] += number
    for part in layer.feed_forward:
        for name, number in feed_forward_weights(part, hidden_size).items():
            weights[name] += number
    if layer.per_layer_input:
        weights["ple"] += 2 * hidden_size * layer.per_layer_input
    return MappingProxyType(dict(weights))


def weights_by_component(spec: ModelSpec) -> Mapping[str, int]:
    """Return all parameters by FLOP component, plus "embedding" and "vectors".

    A tied LM head counts as the embedding.
    """
    total: dict[str, int] = defaultdict(int)
    for layer, count in spec.distinct_layers:
        for name, number in layer_weights(layer, spec.hidden_size).items():
            total[name] += count * number
        total["vectors"] += count * layer.num_vector_parameters
    per_layer_width = sum(layer.per_layer_input for layer in spec.layers)
    if per_layer_width:
        # One projection of the token embedding gives the per-layer inputs of all layers.
        total["ple"] += spec.hidden_size * per_layer_width
    total["embedding"] = (
        spec.vocab_size * spec.hidden_size + spec.per_layer_vocab_size * per_layer_width
    )
    total["lm_head"] = 0 if spec.tied_embeddings else spec.vocab_size * spec.hidden_size
    total["vectors"] += spec.num_vector_parameters
    return MappingProxyType(dict(total))


def num_parameters(spec: ModelSpec) -> int:
    """Return the number of parameters of the text model, tied weights once, drafts left out."""
    return sum(weights_by_component(spec).values())


_SCALED_BITS: Final = {
    # An 8-bit scale for each 32 weights, a 16-bit one for each 16, 16 bits of scale (and 4 of zero
    # point) for each 128.
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "int4": 4.2,
}

_KEPT_COMPONENTS: Final = ("embedding", "lm_head", "router", "vectors", "shared_gate", "conv")
"""What quantized files usually keep in 16 bits."""


def weight_bytes(spec: ModelSpec) -> int:
    """Return the bytes of all weights as the files keep them.

    Plain weights take the model's dtype (bfloat16 where the file names none). Quantized files keep
    embedding, LM head, router and vectors in 16 bits, and mxfp4 files all but the experts; where
    the number of bits is unknown the weights count in full.
    """
    return round(sum(component_bytes(spec).values()))


def component_bytes(spec: ModelSpec) -> Mapping[str, float]:
    """Return the bytes of the weights by component, plus "embedding" and "vectors"."""
    plain = _DTYPE_BYTES.get(spec.dtype, 2.0) if spec.dtype is not UNKNOWN else 2.0
    quantized = plain
    method = spec.quantization
    if method is not None and method.weight_bits is not UNKNOWN:
        quantized = method.weight_bits / 8
        if method.weight_bits == 4:
            name = method.method if method.method in _SCALED_BITS else "int4"
            quantized = _SCALED_BITS[name] / 8
    parts = {}
    for name, number in weights_by_component(spec).items():
        is_kept = name in _KEPT_COMPONENTS
        if method is not None and method.method == "mxfp4":
            is_kept = name != "experts"
        parts[name] = number * (plain if is_kept else quantized)
    return MappingProxyType(parts)
