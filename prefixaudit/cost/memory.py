"""Bytes of keys, values and states: per token, per sequence, by dtype and tensor-parallel rank.

A KV head is never split over ranks: a rank holds max(1, heads // ranks) of them, so few heads on
many ranks are replicated (vLLM `ModelConfig.get_num_kv_heads`). Latents of latent attention, and
the keys of its indexer, are on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal

from prefixaudit.core.model import (
    Attention,
    CacheSpec,
    GatedDelta,
    KimiDelta,
    LatentAttention,
    Mamba1,
    Mamba2,
    Mixer,
    ModelSpec,
    ShortConvolution,
)
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import ConfigurationError, unknown_name

DTYPE_BYTES: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "float32": Fraction(4),
        "float": Fraction(4),
        "bfloat16": Fraction(2),
        "bf16": Fraction(2),
        "float16": Fraction(2),
        "half": Fraction(2),
        "fp8": Fraction(1),
        "fp8_e4m3": Fraction(1),
        "fp8_e5m2": Fraction(1),
        "fp8_inc": Fraction(1),
        "int8": Fraction(1),
        # 4 bits an element, and an fp8 scale for each 16.
        "nvfp4": Fraction(9, 16),
        "fp4_e2m1": Fraction(1, 2),
        "int4": Fraction(1, 2),
        "int8_per_token_head": Fraction(1),
        "fp8_per_token_head": Fraction(1),
        "int4_per_token_head": Fraction(1, 2),
    }
)
"""Bytes of one element of a KV cache type, without scales a token."""

_SCALE_BYTES_PER_TOKEN_AND_HEAD: Final = 4

_LATENT_FORMATS: Final[Mapping[str, int]] = MappingProxyType(
    # Bytes a token and layer, rotary part and scales included (vLLM 0.33, a latent of 512).
    {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
)


def element_bytes(dtype: str) -> Fraction:
    """Return the bytes of an element of a cache type. Raises ConfigurationError if unknown."""
    if dtype in _LATENT_FORMATS:
        raise ConfigurationError(f"KV cache dtype {dtype!r} is for latent attention only")
    if dtype not in DTYPE_BYTES:
        raise ConfigurationError(
            unknown_name("KV cache dtype", dtype, (*DTYPE_BYTES, *_LATENT_FORMATS, "auto"))
        )
    return DTYPE_BYTES[dtype]


def cache_of(spec: ModelSpec | CacheSpec) -> CacheSpec:
    """Return the cache of a model, or the cache itself."""
    return spec.cache if isinstance(spec, ModelSpec) else spec


def kv_dtype(spec: ModelSpec | CacheSpec, kv_cache_dtype: str = "auto") -> str:
    """Return the type that KV is kept in: "auto" is the model's own.

    A file that names no dtype (gpt-oss) is taken as bfloat16; float32 weights are served in
    bfloat16 too, as vLLM's `auto` does (`_get_and_verify_dtype`).
    """
    if kv_cache_dtype != "auto":
        return kv_cache_dtype
    if spec.dtype is UNKNOWN or spec.dtype == "float32":
        return "bfloat16"
    return spec.dtype


def kv_elements_per_token(mixer: Mixer, *, tensor_parallel: int = 1) -> int:
    """Return the elements that a mixer caches a token on one rank; 0 for states and reused KV."""
    if isinstance(mixer, Attention):
        if mixer.reuses_kv:
            return 0
        return 2 * max(1, mixer.num_kv_heads // tensor_parallel) * mixer.head_dim
    if isinstance(mixer, LatentAttention):
        indexer = mixer.indexer.head_dim if mixer.indexer is not None else 0
        return mixer.kv_lora_rank + mixer.rope_head_dim + indexer
    return 0


def mixer_kv_bytes(
    mixer: Mixer, dtype: str, *, tensor_parallel: int = 1, indexer_bytes: int | None = None
) -> Fraction:
    """Return the bytes that a mixer caches a token on one rank, in the KV type `dtype`.

    `indexer_bytes` replaces the size of an indexer's key (vLLM keeps 128 fp8 elements and a scale:
    132 bytes, whatever the type); None is its elements in `dtype`.
    """
    if isinstance(mixer, LatentAttention):
        indexer = mixer.indexer.head_dim if mixer.indexer is not None else 0
        latent = mixer.kv_lora_rank + mixer.rope_head_dim
        if dtype in _LATENT_FORMATS:
            total = Fraction(_LATENT_FORMATS[dtype])
            size = Fraction(1)
        else:
            size = element_bytes(dtype)
            total = latent * size
        if indexer and indexer_bytes is not None:
            return total + indexer_bytes
        return total + indexer * size
    if dtype in _LATENT_FORMATS and isinstance(mixer, Attention):
        raise ConfigurationError(f"KV cache dtype {dtype!r} is for latent attention only")
    total = kv_elements_per_token(mixer, tensor_parallel=tensor_parallel) * element_bytes(dtype)
    if dtype.endswith("_per_token_head") and isinstance(mixer, Attention) and total:
        heads = max(1, mixer.num_kv_heads // tensor_parallel)
        total += 2 * heads * _SCALE_BYTES_PER_TOKEN_AND_HEAD
    return total


def kv_bytes_per_token(
    spec: ModelSpec | CacheSpec,
    *,
    kv_cache_dtype: str = "auto",
    tensor_parallel: int = 1,
    indexer_bytes: int | None = None,
) -> int:
    """Return the KV bytes of one token in all layers on one rank, windowed layers included.

    A token inside every window: sequences longer than a window hold less a token, see
    `sequence_bytes`. State layers hold none.
    """
    dtype = kv_dtype(spec, kv_cache_dtype)
    total = sum(
        count
        * mixer_kv_bytes(mixer, dtype, tensor_parallel=tensor_parallel, indexer_bytes=indexer_bytes)
        for mixer, count in cache_of(spec).distinct_mixers
    )
    return math.ceil(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers that keep the same tokens: their KV bytes a token, or their state's bytes a sequence.

    `span` is the window or chunk, None for full attention and states. Sizes are those of all layers
    of the group together on one rank; `bytes_per_token` is 0 for states.
    """

    kind: Literal["full", "window", "chunk", "state"]
    span: int | None
    num_layers: int
    bytes_per_token: int
    state_bytes: int


def kv_groups(
    spec: ModelSpec | CacheSpec, *, kv_cache_dtype: str = "auto", tensor_parallel: int = 1
) -> tuple[KvGroup, ...]:
    """Return the groups in the order of their first layers; layers that reuse KV are in none."""
    cache = cache_of(spec)
    dtype = kv_dtype(cache, kv_cache_dtype)
    layers: dict[tuple[Literal["full", "window", "chunk", "state"], int | None], int] = {}
    token_bytes: dict[tuple[str, int | None], Fraction] = {}
    states: dict[tuple[str, int | None], int] = {}
    for mixer, count in cache.distinct_mixers:
        if isinstance(mixer, Attention) and mixer.reuses_kv:
            continue
        key: tuple[Literal["full", "window", "chunk", "state"], int | None]
        match mixer:
            case Attention(chunk=int()):
                key = ("chunk", mixer.chunk)
            case Attention(window=int()):
                key = ("window", mixer.window)
            case Attention() | LatentAttention():
                key = ("full", None)
            case _:
                key = ("state", None)
        size = mixer_kv_bytes(mixer, dtype, tensor_parallel=tensor_parallel)
        state = mixer_state_bytes(mixer, cache, tensor_parallel=tensor_parallel)
        layers[key] = layers.get(key, 0) + count
        token_bytes[key] = token_bytes.get(key, Fraction(0)) + count * size
        states[key] = states.get(key, 0) + count * state
    return tuple(
        KvGroup(
            kind=key[0],
            span=key[1],
            num_layers=number,
            bytes_per_token=math.ceil(token_bytes[key]),
            state_bytes=states[key],
        )
        for key, number in layers.items()
    )


def live_tokens(mixer: Mixer, num_tokens: int) -> int:
    """Return how many of a sequence's tokens a layer still needs: at most its window or chunk."""
    if isinstance(mixer, Attention):
        limit = mixer.chunk if mixer.chunk is not None else mixer.window
        if limit is not None:
            return min(num_tokens, limit)
    return num_tokens


def sequence_bytes(
    spec: ModelSpec | CacheSpec,
    num_tokens: int,
    *,
    kv_cache_dtype: str = "auto",
    tensor_parallel: int = 1,
    has_hybrid_manager: bool = True,
) -> int:
    """Return the bytes that one sequence of `num_tokens` keeps on one rank, states included.

    Windowed layers keep their window only; without the hybrid manager (an engine that gives all
    layers the full length) they keep every token. Block rounding is left out.
    """
    cache = cache_of(spec)
    dtype = kv_dtype(cache, kv_cache_dtype)
    total = Fraction(state_bytes(cache, tensor_parallel=tensor_parallel))
    for mixer, count in cache.distinct_mixers:
        tokens = live_tokens(mixer, num_tokens) if has_hybrid_manager else num_tokens
        total += count * tokens * mixer_kv_bytes(mixer, dtype, tensor_parallel=tensor_parallel)
    return math.ceil(total)


def state_bytes(spec: ModelSpec | CacheSpec, *, tensor_parallel: int = 1) -> int:
    """Return the bytes of all layers' states of one sequence on one rank."""
    cache = cache_of(spec)
    return sum(
        count * mixer_state_bytes(mixer, cache, tensor_parallel=tensor_parallel)
        for mixer, count in cache.distinct_mixers
    )


def mixer_state_bytes(mixer: Mixer, cache: CacheSpec, *, tensor_parallel: int = 1) -> int:
    """Return the bytes of one layer's state: recurrent in its own type, convolution in the model's.

    0 for attention.
    """
    recurrent, convolution = state_elements(mixer, tensor_parallel=tensor_parallel)
    model_dtype = kv_dtype(cache)
    state_dtype = model_dtype if cache.state_dtype == "model" else cache.state_dtype
    return int(recurrent * element_bytes(state_dtype) + convolution * element_bytes(model_dtype))


def state_elements(mixer: Mixer, *, tensor_parallel: int = 1) -> tuple[int, int]:
    """Return (recurrent, convolution) elements of a mixer's state a sequence on one rank.

    Heads and channels are split over the ranks. The convolution keeps the last conv_kernel - 1
    columns (vLLM `MambaStateShapeCalculator`; transformers keeps one more).
    """
    ranks = tensor_parallel
    match mixer:
        case GatedDelta():
            key = mixer.num_key_heads * mixer.key_head_dim
            value = mixer.num_value_heads * mixer.value_head_dim
            recurrent = mixer.num_value_heads * mixer.key_head_dim * mixer.value_head_dim
            return recurrent // ranks, (2 * key + value) // ranks * (mixer.conv_kernel - 1)
        case KimiDelta():
            inner = mixer.num_heads * mixer.head_dim
            return (
                inner * mixer.head_dim // ranks,
                3 * inner // ranks * (mixer.conv_kernel - 1),
            )
        case Mamba1():
            inner = mixer.inner // ranks
            return inner * mixer.state_size, inner * (mixer.conv_kernel - 1)
        case Mamba2():
            inner = mixer.inner // ranks
            # Groups that don't divide by the ranks are replicated to one a rank.
            groups = mixer.num_groups
            groups = groups // ranks if groups % ranks == 0 else 1
            shared = 2 * groups * mixer.state_size
            return inner * mixer.state_size, (inner + shared) * (mixer.conv_kernel - 1)
        case ShortConvolution():
            return 0, mixer.inner // ranks * (mixer.conv_kernel - 1)
        case _:
            return 0, 0
