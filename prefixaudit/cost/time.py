"""Seconds of a prefill as a range from stated assumptions; never one number from one efficiency.

    compute = FLOPs / (ranks * dense peak * efficiency)
    memory  = (weights read + KV read + KV written) / (ranks * bandwidth * 0.6 to 0.8)
    prefill = max(compute, memory) + collectives + overhead a step

A roofline, as inference-sim/inference-sim (BLIS) `roofline` and ai-dynamo/aiconfigurator have it.
The efficiency bands come from aiconfigurator's measured vLLM kernels (GEMM and causal attention,
Llama-3.1-8B: 0.29 of the dense peak at 128 tokens, 0.76 at 512, 0.81 at 2,048 on an H100; 0.46,
0.71, 0.82 on an A100) and whole-engine figures below them (BLIS 0.45, 0.38, 0.32 on H100, A100,
L40S). Fused experts reach about half (0.15 at 1k tokens, 0.42 at 8k for Qwen3-30B-A3B), fp8 about
0.7 of the bf16 share. A measured throughput of the user's own replaces the band.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.model import Experts, GatedDelta, KimiDelta, Mamba1, Mamba2, ModelSpec
from prefixaudit.core.trace import Float64Array
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.cost.flops import prefill_flops
from prefixaudit.cost.hardware import Gpu
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.weights import component_bytes, weight_bytes
from prefixaudit.errors import ConfigurationError

ComputeType: TypeAlias = Literal["bf16", "fp8"]

# (new tokens, lowest, highest share of the dense peak); between them linear in log(tokens).
_BAND: Final = ((128, 0.10, 0.35), (512, 0.30, 0.70), (2048, 0.40, 0.75))
_EXPERTS_FACTOR: Final = 0.5
_FP8_FACTOR: Final = 0.7
BANDWIDTH_SHARE: Final = (0.6, 0.8)

# Share of a peer link that an all-reduce reaches: 128 MB on 8 GPUs take 1.09 ms on H100 (0.48),
# 2.17 ms on A100 (0.36), 0.72 ms on B200 (0.36); and what each costs however small it is.
_LINK_SHARE: Final = (0.33, 0.50)
_COLLECTIVE_LATENCY_S: Final = (8e-6, 30e-6)

# Launches and scheduling a step: nothing, or BLIS' fit of 126 us and 32 us a layer.
_STEP_S: Final = (0.0, 126e-6)
_LAYER_S: Final = (0.0, 32e-6)

# State layers move more bytes than they compute: nothing, or what vLLM's kernels of the gated delta
# rule take on an H100 (0.51 ms a layer for 8,192 tokens), by the memory bandwidth of other GPUs.
_STATE_S: Final = (0.0, 0.51e-3 / 8192)
_STATE_BANDWIDTH: Final = 3350e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A range of seconds, low and high: float64 of one shape, or plain numbers."""

    lo: Float64Array
    hi: Float64Array

    def __sub__(self, other: Seconds) -> Seconds:
        """Return the difference, corner by corner: both ranges stem from the same assumptions."""
        first, second = self.lo - other.lo, self.hi - other.hi
        return Seconds(lo=np.minimum(first, second), hi=np.maximum(first, second))

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(lo=self.lo + other.lo, hi=self.hi + other.hi)

    def total(self) -> tuple[float, float]:
        """Return the range of the sum over all elements."""
        return float(np.sum(self.lo)), float(np.sum(self.hi))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPrefill:
    """A prefill throughput that the user measured: tokens a second for prompts of `num_tokens`."""

    tokens_per_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """Turns tokens into seconds for one model on `tensor_parallel` GPUs of one kind.

    `compute_type` is what the matrices multiply in; `efficiency` replaces the band by one of the
    user's; `measured` replaces it by the efficiency that a measurement implies.
    """

    spec: ModelSpec
    gpu: Gpu
    tensor_parallel: int = 1
    compute_type: ComputeType = "bf16"
    kv_cache_dtype: str = "auto"
    efficiency: tuple[float, float] | None = None
    measured: MeasuredPrefill | None = None
    last_position_only: bool = True
    _implied: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.compute_type == "fp8" and self.gpu.fp8_flops_per_s is None:
            raise ConfigurationError(f"{self.gpu.title} has no fp8 units; compute is bf16 there")
        if self.measured is not None:
            object.__setattr__(self, "_implied", self._implied_efficiency(self.measured))

    def _implied_efficiency(self, measured: MeasuredPrefill) -> float:
        if measured.tokens_per_s <= 0 or measured.num_tokens < 1:
            raise ConfigurationError(
                "a measured throughput has tokens a second and a length above 0"
            )
        flops = sum(prefill_flops(self.spec, measured.num_tokens, 0).values())
        share = flops * measured.tokens_per_s / measured.num_tokens / self.peak_flops_per_s
        if share > 1:
            raise ConfigurationError(
                f"{measured.tokens_per_s:,.0f} tokens/s at {measured.num_tokens:,} tokens would be "
                f"{share:.0%} of the dense peak of {self.tensor_parallel} x {self.gpu.title}; "
                "were cached tokens counted?"
            )
        return share

    @property
    def peak_flops_per_s(self) -> float:
        """Return the dense peak of all ranks in the compute type."""
        peak = self.gpu.bf16_flops_per_s
        if self.compute_type == "fp8":
            assert self.gpu.fp8_flops_per_s is not None
            peak = self.gpu.fp8_flops_per_s
        return peak * self.tensor_parallel

    def efficiency_band(self, n: NDArray[np.integer] | int) -> tuple[Float64Array, Float64Array]:
        """Return the lowest and highest share of the peak for n new tokens (float64, n's shape)."""
        tokens = np.asarray(n, dtype=np.float64)
        if self._implied is not None and self.measured is not None:
            # The band's shape through the measured point: at its length there is one value.
            low, high = self._band(tokens)
            low_there, high_there = self._band(np.asarray(float(self.measured.num_tokens)))
            first, second = low / low_there, high / high_there
            return (
                np.minimum(self._implied * np.minimum(first, second), 1.0),
                np.minimum(self._implied * np.maximum(first, second), 1.0),
            )
        if self.efficiency is not None:
            lo, hi = self.efficiency
            return np.full(tokens.shape, lo), np.full(tokens.shape, hi)
        return self._band(tokens)

    def _band(self, tokens: Float64Array) -> tuple[Float64Array, Float64Array]:
        places = np.log([point[0] for point in _BAND])
        # Below 128 tokens the share falls with them: a step takes no less than that of 128.
        small = np.minimum(tokens / _BAND[0][0], 1.0)
        at = np.log(np.maximum(tokens, 1.0))
        factor = self._band_factor
        # A power law between the points: more tokens then never take less time.
        low, high = (
            np.exp(np.interp(at, places, np.log([point[side] for point in _BAND])))
            for side in (1, 2)
        )
        low, high = low * small * factor, high * small * factor
        return low, high

    @property
    def _band_factor(self) -> float:
        factor = _EXPERTS_FACTOR if self.has_experts else 1.0
        return factor * (_FP8_FACTOR if self.compute_type == "fp8" else 1.0)

    @property
    def has_experts(self) -> bool:
        return any(
            isinstance(part, Experts) for layer in self.spec.layers for part in layer.feed_forward
        )

    def flops(self, n: NDArray[np.integer], c: NDArray[np.integer]) -> Float64Array:
        """Return the prefill FLOPs of n new tokens after c cached ones (float64)."""
        parts = prefill_flops(self.spec, n, c, last_position_only=self.last_position_only)
        total = np.zeros(np.broadcast(n, c).shape)
        for part in parts.values():
            total = total + part
        return total

    def prefill_s(self, n: NDArray[np.integer], c: NDArray[np.integer]) -> Seconds:
        """Return the seconds of a lone request's prefill: n new tokens after c cached ones."""
        new, cached = np.atleast_1d(np.asarray(n)), np.atleast_1d(np.asarray(c))
        # Cached latents are expanded in one product of all rows, new or not: it is as efficient as
        # a prompt of that length, however short what the hit leaves is.
        parts = prefill_flops(self.spec, new, cached, last_position_only=self.last_position_only)
        expanded = np.asarray(parts.pop("mla_kv_up", 0), dtype=np.float64)
        flops = sum(parts.values()) + np.zeros(np.broadcast(new, cached).shape)
        low, high = self.efficiency_band(new)
        low_long, high_long = self.efficiency_band(new + cached)
        peak = self.peak_flops_per_s
        moved = self._moved_bytes(new, cached) / self.gpu.bandwidth_bytes_per_s
        quickest = flops / (peak * high) + expanded / (peak * high_long)
        longest = flops / (peak * low) + expanded / (peak * low_long)
        fast = np.maximum(quickest, moved / BANDWIDTH_SHARE[1])
        slow = np.maximum(longest, moved / BANDWIDTH_SHARE[0])
        quick, late = self.overhead_s(new)
        return Seconds(lo=fast + quick, hi=slow + late)

    def overhead_s(self, new: NDArray[np.integer]) -> tuple[Float64Array, Float64Array]:
        """Return what a step of n new tokens takes beside compute and memory, at best, at worst.

        Collectives, launches, scheduling. A measured throughput has them in it already.
        """
        if self._implied is not None:
            nothing = np.zeros(np.shape(new))
            return nothing, nothing
        quick, late = self._collective_s(new)
        layers = self.spec.num_layers
        states = np.asarray(new) * self._num_state_layers / self.tensor_parallel
        states = states * (_STATE_BANDWIDTH / self.gpu.bandwidth_bytes_per_s)
        return (
            quick + states * _STATE_S[0] + _STEP_S[0] + layers * _LAYER_S[0],
            late + states * _STATE_S[1] + _STEP_S[1] + layers * _LAYER_S[1],
        )

    @property
    def _num_state_layers(self) -> int:
        return sum(
            count
            for mixer, count in self.spec.cache.distinct_mixers
            if isinstance(mixer, GatedDelta | KimiDelta | Mamba1 | Mamba2)
        )

    def _moved_bytes(self, new: NDArray[np.integer], cached: NDArray[np.integer]) -> Float64Array:
        """Return the bytes that each rank reads and writes."""
        per_token = kv_bytes_per_token(
            self.spec, kv_cache_dtype=self.kv_cache_dtype, tensor_parallel=self.tensor_parallel
        )
        return self.weight_read_bytes(new) + (new + cached) * float(per_token)

    def weight_read_bytes(self, new: NDArray[np.integer]) -> Float64Array:
        """Return the bytes of weights that each rank reads in a step of n new tokens."""
        parts = dict(component_bytes(self.spec))
        experts = parts.pop("experts", 0.0)
        if not self.spec.tied_embeddings:
            parts.pop("embedding")  # A lookup reads a row a token.
        weights = sum(parts.values()) + experts * self._touched_share(new)
        return np.broadcast_to(weights / self.tensor_parallel, np.shape(new)).astype(np.float64)

    def _touched_share(self, new: NDArray[np.integer]) -> Float64Array:
        """Return the share of the routed experts that n tokens touch: 1 - (1 - k/E)^n."""
        for layer in self.spec.layers:
            for part in layer.feed_forward:
                if isinstance(part, Experts):
                    missed = 1 - part.num_per_token / part.num_experts
                    return np.asarray(1 - missed ** np.asarray(new, dtype=np.float64))
        return np.zeros(np.shape(new))

    def _collective_s(self, new: NDArray[np.integer]) -> tuple[Float64Array, Float64Array]:
        """Return the range of two all-reduces a layer over the ranks."""
        ranks = self.tensor_parallel
        if ranks == 1:
            zero = np.zeros(np.shape(new))
            return zero, zero
        link = self.gpu.peer_link_bytes_per_s or self.gpu.host_link_bytes_per_s
        count = 2 * self.spec.num_layers
        size = np.asarray(new, dtype=np.float64) * self.spec.hidden_size * 2
        sent = 2 * (ranks - 1) / ranks * size / link
        return (
            count * (sent / _LINK_SHARE[1] + _COLLECTIVE_LATENCY_S[0]),
            count * (sent / _LINK_SHARE[0] + _COLLECTIVE_LATENCY_S[1]),
        )

    def gpu_s_at_saturation(self, flops: float) -> tuple[float, float]:
        """Return the GPU seconds of `flops` in full batches: what they cost when nothing waits."""
        low, high = self.efficiency_band(np.asarray(_BAND[-1][0]))
        peak = self.peak_flops_per_s / self.tensor_parallel
        return flops / (peak * float(high)), flops / (peak * float(low))

    @property
    def weight_floor_s(self) -> float:
        """Return the seconds that reading all weights once takes at the full bandwidth."""
        return weight_bytes(self.spec) / self.tensor_parallel / self.gpu.bandwidth_bytes_per_s

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the seconds rest on, a sentence each."""
        name = f"{self.tensor_parallel} x {self.gpu.title}"
        peak = self.peak_flops_per_s / self.tensor_parallel / 1e12
        lines = [
            f"{name}, {self.compute_type} dense peak {peak:,.0f} TFLOPS a GPU",
            "a prompt is one step of its own: no chunks, nothing else in the batch"
            + (", all GPUs in one node" if self.tensor_parallel > 1 else ""),
        ]
        if not self.gpu.is_checked:
            lines.append(f"the figures of {self.gpu.title} were not read again in their source")
        if self.measured is not None and self._implied is not None:
            lines.append(
                f"efficiency {self._implied:.2f} of the peak, from a measured "
                f"{self.measured.tokens_per_s:,.0f} tokens/s at {self.measured.num_tokens:,} "
                "tokens; at other lengths in the proportion that is usual for them"
            )
        elif self.efficiency is not None:
            lo, hi = self.efficiency
            lines.append(f"efficiency {lo:.2f} to {hi:.2f} of the peak, as given; not measured")
        else:
            lines.append(self._band_text())
        share = f"{BANDWIDTH_SHARE[0]:g} to {BANDWIDTH_SHARE[1]:g}"
        lines.append(
            f"memory {self.gpu.bandwidth_bytes_per_s / 1e9:,.0f} GB/s, {share} of it reached"
        )
        if self.tensor_parallel > 1 and self._implied is None:
            lines.append(
                f"two all-reduces a layer at {_LINK_SHARE[0]:g} to {_LINK_SHARE[1]:g} of the link"
            )
        if self._implied is None:
            lines.append("0 to 32 us a layer and 126 us a step of launches and scheduling")
            if self._num_state_layers:
                lines.append(
                    "state layers take up to 62 ns a token and layer more than their FLOPs say "
                    "(on an H100, by bandwidth elsewhere)"
                )
        if self.spec.dtype is UNKNOWN:
            lines.append("the file names no dtype: bfloat16 assumed")
        return tuple(lines)

    def _band_text(self) -> str:
        shares = ", ".join(
            f"{lo * self._band_factor:.2f}-{hi * self._band_factor:.2f} at {tokens:,}"
            for tokens, lo, hi in _BAND
        )
        kind = "experts" if self.has_experts else "dense"
        return f"efficiency assumed, not measured ({kind}): {shares} new tokens and more"


def default_compute_type(spec: ModelSpec, gpu: Gpu) -> ComputeType:
    """Return fp8 where the weights are fp8 and the GPU has units for it, else bf16.

    Weight-only quantization (gptq, awq, mxfp4, …) multiplies in 16 bits.
    """
    method = spec.quantization
    is_fp8 = method is not None and method.weight_bits == 8 and "fp8" in method.method
    return "fp8" if is_fp8 and gpu.fp8_flops_per_s is not None else "bf16"
