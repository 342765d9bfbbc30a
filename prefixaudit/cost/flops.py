"""Prefill FLOPs by component, in closed form: n new tokens after c cached ones.

One multiply-add is 2 FLOPs; only matrix products and convolutions count (no softmax, norm,
activation or rotation), and recurrent cores in their recurrent form. Attention is counted
causally: the query-key pairs that the mask leaves, as kernels of the FlashAttention family do. The
LM head is computed for the last position only. The square form, in which a reference
implementation multiplies the whole rectangle of queries and keys, is here for checks.

The formulas are those that `torch.utils.flop_counter` measures on the modules of transformers 5.24.

Everything a prefill costs is a sum of four kinds of terms: once a request, once a new token, once a
token of the whole context (latents are expanded again), and once a query-key pair. So what a
cached prefix of c tokens saves depends on c alone, not on what follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, assert_never, overload

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.model import (
    COMPONENTS,
    Attention,
    Experts,
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
from prefixaudit.core.trace import Float64Array, Int64Array
from prefixaudit.cost.weights import layer_weights

Form: TypeAlias = Literal["causal", "square"]
Visibility: TypeAlias = tuple[Literal["full", "window", "chunk"], int]
_FULL: Visibility = ("full", 0)

GATED_DELTA_CHUNK = 64
"""Chunk of transformers' `torch_chunk_gated_delta_rule`, for the square form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopTerms:
    """Coefficients (FLOPs) of a model's prefill, by component.

    `per_pair` is keyed by component and by which pairs are visible; `last_*` are the terms of the
    layers that reuse the keys and values of earlier ones, of which only the last position is
    computed (see `flop_terms`).
    """

    once: Mapping[str, int]
    per_token: Mapping[str, int]
    per_context_token: Mapping[str, int]
    per_pair: Mapping[tuple[str, Visibility], int]
    last_token: Mapping[str, int]
    last_pair: Mapping[tuple[str, Visibility], int]
    gated_delta: tuple[tuple[GatedDelta, int], ...]


@lru_cache(maxsize=64)
def flop_terms(spec: ModelSpec, *, last_position_only: bool = True) -> FlopTerms:
    """Return the coefficients of a model.

    Layers at the end that reuse the keys and values of earlier layers (Gemma 3n and 4) have nothing
    to store, so only the last position needs to pass them when no other logits are wanted:
    transformers 5.24 does that, vLLM with `kv_sharing_fast_prefill`. With `last_position_only`
    False they are counted for every new token.
    """
    per_token: dict[str, int] = defaultdict(int)
    per_context: dict[str, int] = defaultdict(int)
    per_pair: dict[tuple[str, Visibility], int] = defaultdict(int)
    last_token: dict[str, int] = defaultdict(int)
    last_pair: dict[tuple[str, Visibility], int] = defaultdict(int)
    gated_delta: list[tuple[GatedDelta, int]] = []
    for layer, count in spec.distinct_layers:
        is_last_only = last_position_only and _reuses_kv(layer)
        token_terms = last_token if is_last_only else per_token
        pair_terms = last_pair if is_last_only else per_pair
        for name, number in _multiplied_weights(layer, spec.hidden_size).items():
            target = per_context if name == "mla_kv_up" else token_terms
            target[name] += 2 * number * count
        for mixer in layer.mixers:
            for component, visible, number in _pair_terms(mixer):
                pair_terms[component, visible] += number * count
            if core := _recurrent_core(mixer):
                token_terms["lin_core"] += core * count
            if isinstance(mixer, GatedDelta):
                gated_delta.append((mixer, count))
    per_layer_width = sum(layer.per_layer_input for layer in spec.layers)
    if per_layer_width:
        per_token["ple"] += 2 * spec.hidden_size * per_layer_width
    return FlopTerms(
        once={"lm_head": 2 * spec.hidden_size * spec.vocab_size},
        per_token=dict(per_token),
        per_context_token=dict(per_context),
        per_pair=dict(per_pair),
        last_token=dict(last_token),
        last_pair=dict(last_pair),
        gated_delta=tuple(gated_delta),
    )


def _reuses_kv(layer: LayerSpec) -> bool:
    return any(isinstance(mixer, Attention) and mixer.reuses_kv for mixer in layer.mixers)


def _multiplied_weights(layer: LayerSpec, hidden_size: int) -> Mapping[str, int]:
    """Return the weights that one token meets: of the routed experts only its own."""
    weights = dict(layer_weights(layer, hidden_size))
    for part in layer.feed_forward:
        if isinstance(part, Experts):
            weights["experts"] = weights["experts"] // part.num_experts * part.num_per_token
    return weights


def _pair_terms(mixer: Mixer) -> tuple[tuple[str, Visibility, int], ...]:
    """Return (component, visible pairs, FLOPs a pair) of softmax attention; none for states."""
    match mixer:
        case Attention():
            # QK and PV, 2 FLOPs each a pair and element; grouping the keys doesn't change it.
            return (("attn_core", visibility(mixer), 4 * mixer.num_heads * mixer.head_dim),)
        case LatentAttention():
            width = mixer.nope_head_dim + mixer.rope_head_dim + mixer.value_head_dim
            core = 2 * mixer.num_heads * width
            if (indexer := mixer.indexer) is None:
                return (("attn_core", _FULL, core),)
            # Scores of every indexer head, then their weighted sum.
            scores = 2 * indexer.num_heads * (indexer.head_dim + 1)
            return (("attn_core", _FULL, core), ("indexer_core", _FULL, scores))
        case GatedDelta() | KimiDelta() | Mamba1() | Mamba2() | ShortConvolution():
            return ()
        case _:
            assert_never(mixer)


def visibility(mixer: Attention) -> Visibility:
    """Return which keys a query of this attention sees."""
    if mixer.chunk is not None:
        return "chunk", mixer.chunk
    if mixer.window is not None:
        return "window", mixer.window
    return "full", 0


def _recurrent_core(mixer: Mixer) -> int:
    """Return the FLOPs a token of a state's update and readout, in the recurrent form."""
    match mixer:
        case GatedDelta():
            return 6 * mixer.num_value_heads * mixer.key_head_dim * mixer.value_head_dim
        case KimiDelta():
            return 6 * mixer.num_heads * mixer.head_dim**2
        case Mamba1() | Mamba2():
            return 6 * mixer.inner * mixer.state_size
        case Attention() | LatentAttention() | ShortConvolution():
            return 0
        case _:
            assert_never(mixer)


def causal_pairs(visible: Visibility, n: int, c: int) -> int:
    """Return the query-key pairs of n queries after c positions that a causal mask leaves."""
    kind, size = visible
    match kind:
        case "full":
            return n * c + n * (n + 1) // 2
        case "window":
            # Position p sees min(size, p + 1) keys.
            return (
                _triangle(min(c + n, size))
                - _triangle(min(c, size))
                + size * (max(c + n - size, 0) - max(c - size, 0))
            )
        case "chunk":
            # Position p sees the p mod size + 1 keys of its own chunk.
            return _chunked(c + n, size) - _chunked(c, size)
        case _:
            assert_never(kind)


def _triangle(number: int) -> int:
    return number * (number + 1) // 2


def _chunked(positions: int, size: int) -> int:
    chunks, rest = divmod(positions, size)
    return chunks * _triangle(size) + _triangle(rest)


def square_pairs(visible: Visibility, n: int, c: int) -> int:
    """Return the pairs of a reference implementation that multiplies the whole rectangle.

    Its cache keeps the last size - 1 positions of a windowed or chunked layer.
    """
    kind, size = visible
    return n * (n + (c if kind == "full" else min(c, size - 1)))


@overload
def prefill_flops(
    spec: ModelSpec, n: int, c: int, *, form: Form = ..., last_position_only: bool = ...
) -> dict[str, int]: ...


@overload
def prefill_flops(
    spec: ModelSpec,
    n: NDArray[np.integer],
    c: NDArray[np.integer],
    *,
    form: Literal["causal"] = ...,
    last_position_only: bool = ...,
) -> dict[str, Float64Array]: ...


def prefill_flops(
    spec: ModelSpec,
    n: int | NDArray[np.integer],
    c: int | NDArray[np.integer],
    *,
    form: Form = "causal",
    last_position_only: bool = True,
) -> dict[str, int] | dict[str, Float64Array]:
    """Return the FLOPs of prefilling n new tokens after c cached ones, by component.

    For two whole numbers the result is exact (Python ints); for arrays of one shape it is float64
    of that shape, each component rounded once or twice. n is 1 or more: a prompt whose every
    token is cached still computes its last one (in arrays an n of 0 costs nothing, LM head
    included). Components that a model doesn't have are left out.
    """
    terms = flop_terms(spec, last_position_only=last_position_only)
    if isinstance(n, np.ndarray) or isinstance(c, np.ndarray):
        if form != "causal":
            raise ValueError("the square form takes whole numbers, not arrays")
        return _prefill_arrays(terms, np.asarray(n), np.asarray(c))
    # numpy's integers would overflow where Python's don't.
    n, c = int(n), int(c)
    if n < 1 or c < 0:
        raise ValueError(f"{n} new tokens after {c} cached ones; 1 or more after 0 or more")
    pairs = causal_pairs if form == "causal" else square_pairs
    total: dict[str, int] = defaultdict(int)
    for name, number in terms.once.items():
        total[name] += number
    for name, number in terms.per_token.items():
        total[name] += number * n
    for name, number in terms.per_context_token.items():
        total[name] += number * (c + n)
    for (name, visible), number in terms.per_pair.items():
        total[name] += number * pairs(visible, n, c)
    for name, number in terms.last_token.items():
        total[name] += number
    for (name, visible), number in terms.last_pair.items():
        # The last query alone; in the square form against all keys that the rectangle has.
        square = square_pairs(visible, n, c) // n
        total[name] += number * (square if form == "square" else pairs(visible, 1, c + n - 1))
    if form == "square":
        for mixer, count in terms.gated_delta:
            recurrent = _recurrent_core(mixer) * n
            total["lin_core"] += count * (_chunked_gated_delta(mixer, n) - recurrent)
    return {name: total[name] for name in COMPONENTS if name in total}


def _chunked_gated_delta(mixer: GatedDelta, n: int) -> int:
    """Return what a counter sees of transformers' chunked form; nothing for one token."""
    if n == 1:
        return 0
    size, key, value = GATED_DELTA_CHUNK, mixer.key_head_dim, mixer.value_head_dim
    chunk = size**2 * (4 * key + 2 * value) + 6 * size * key * value
    return -(-n // size) * mixer.num_value_heads * chunk


def _prefill_arrays(
    terms: FlopTerms, n: NDArray[np.integer], c: NDArray[np.integer]
) -> dict[str, Float64Array]:
    new, cached = np.broadcast_arrays(n.astype(np.int64), c.astype(np.int64))
    end = new + cached
    total: dict[str, Float64Array] = {}

    def add(name: str, number: int, counts: Int64Array) -> None:
        part = np.multiply(counts, float(number))
        total[name] = total[name] + part if name in total else part

    is_run = (new > 0).astype(np.int64)
    for name, number in (*terms.once.items(), *terms.last_token.items()):
        add(name, number, is_run)
    for name, number in terms.per_token.items():
        add(name, number, new)
    for name, number in terms.per_context_token.items():
        add(name, number, end * is_run)
    for (name, visible), number in terms.per_pair.items():
        add(name, number, _pairs_before(visible, end) - _pairs_before(visible, cached))
    for (name, visible), number in terms.last_pair.items():
        add(name, number, (_pairs_before(visible, end) - _pairs_before(visible, end - 1)) * is_run)
    return {name: total[name] for name in COMPONENTS if name in total}


def _pairs_before(visible: Visibility, positions: Int64Array) -> Int64Array:
    """Return the pairs of all queries before `positions` (int64, exact up to 4e9 positions)."""
    kind, size = visible
    match kind:
        case "full":
            return positions * (positions + 1) // 2
        case "window":
            inside: Int64Array = np.minimum(positions, size)
            return inside * (inside + 1) // 2 + size * (positions - inside)
        case "chunk":
            chunks: Int64Array = positions // size
            rest: Int64Array = positions - chunks * size
            return chunks * (size * (size + 1) // 2) + rest * (rest + 1) // 2
        case _:
            assert_never(kind)


def total_flops(components: Mapping[str, int]) -> int:
    """Return the sum over components."""
    return sum(components.values())


@overload
def saved_flops(spec: ModelSpec, c: int, *, last_position_only: bool = ...) -> int: ...


@overload
def saved_flops(
    spec: ModelSpec, c: NDArray[np.integer], *, last_position_only: bool = ...
) -> Float64Array: ...


def saved_flops(
    spec: ModelSpec, c: int | NDArray[np.integer], *, last_position_only: bool = True
) -> int | Float64Array:
    """Return the FLOPs that c cached tokens at the front of any longer prompt save.

    Not saved: the LM head, the expansion of cached latents, and what only the last position passes.
    """
    terms = flop_terms(spec, last_position_only=last_position_only)
    if isinstance(c, np.ndarray):
        cached = c.astype(np.int64)
        saved = np.multiply(cached, float(sum(terms.per_token.values())))
        for (_, visible), number in terms.per_pair.items():
            saved = saved + np.multiply(_pairs_before(visible, cached), float(number))
        return saved
    c = int(c)
    return c * sum(terms.per_token.values()) + sum(
        number * causal_pairs(visible, c, 0) for (_, visible), number in terms.per_pair.items()
    )


def flops_by_depth(
    spec: ModelSpec, block_size: int, num_blocks: int, *, last_position_only: bool = True
) -> Float64Array:
    """Return float64 [num_blocks]: FLOPs that the block at depth j saves when cached.

    All blocks before it are cached too; savings are a function of position only.
    """
    edges = np.arange(num_blocks + 1, dtype=np.int64) * block_size
    terms = flop_terms(spec, last_position_only=last_position_only)
    saved = np.full(num_blocks, float(block_size * sum(terms.per_token.values())))
    for (_, visible), number in terms.per_pair.items():
        saved += float(number) * np.diff(_pairs_before(visible, edges))
    return saved
