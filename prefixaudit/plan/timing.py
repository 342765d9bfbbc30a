"""Seconds of a step for the timed simulation: both ends of the cost model's range, or measured.

A step's new tokens share one efficiency, that of their sum: they run as one batch. FLOPs of prefill
and decode are those of their positions; the LM head counts once a sampled token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from prefixaudit.core.model import Attention, LatentAttention
from prefixaudit.core.trace import Float64Array
from prefixaudit.cost.flops import prefill_flops
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.time import BANDWIDTH_SHARE, TimeModel
from prefixaudit.errors import UsageError
from prefixaudit.pool.vllm.timed import StepSeconds

_ALONE: Final = "a prompt is one step of its own"
_LONGEST_STEP_TOKENS: Final = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEngine:
    """What a user measured: prefill tokens a second, and the shortest step (of decode)."""

    prefill_tokens_per_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """Steps at the fast and at the slow end of the range, and what they rest on."""

    fast: StepSeconds
    slow: StepSeconds
    assumptions: tuple[str, ...]

    @property
    def ends(self) -> tuple[StepSeconds, ...]:
        """Return the ends to simulate: one where both are the same."""
        return (self.fast,) if self.slow is self.fast else (self.fast, self.slow)


def measured_steps(
    measured: MeasuredEngine, *, max_model_tokens: int, max_tokens: int
) -> StepRange:
    """Return steps of max(new tokens / throughput, shortest step); attention grows with neither."""
    if measured.prefill_tokens_per_s <= 0 or measured.step_s < 0:
        raise UsageError("a measured engine has prefill tokens a second above 0 and a step time")
    steps = StepSeconds(
        flops_until=np.arange(max_model_tokens + 1, dtype=np.float64),
        sample_flops=0.0,
        s_per_flop=np.full(max_tokens + 1, 1 / measured.prefill_tokens_per_s),
        moved_s=np.full(max_tokens + 1, measured.step_s),
        token_s=0.0,
        overhead_s=np.zeros(max_tokens + 1),
    )
    return StepRange(
        fast=steps,
        slow=steps,
        assumptions=(
            f"measured: {measured.prefill_tokens_per_s:,.0f} prefill tokens/s, a step of "
            f"{measured.step_s * 1e3:g} ms or more; the same at every length and batch",
        ),
    )


def model_steps(model: TimeModel, *, max_model_tokens: int, max_tokens: int) -> StepRange:
    """Return both ends of the steps of a model on its GPUs; see `cost.time` for the rooflines."""
    if max_tokens > _LONGEST_STEP_TOKENS:
        raise UsageError(f"a step of {max_tokens:,} tokens; expected {_LONGEST_STEP_TOKENS:,}")
    ends = _ends(model, max_model_tokens, max_tokens)
    # The model's own sentences are about a prompt that runs alone; here it shares its steps.
    lines = [line for line in model.assumptions if not line.startswith(_ALONE)]
    mixers = [mixer for mixer, _ in model.spec.cache.distinct_mixers]
    if any(isinstance(m, Attention) and (m.window or m.chunk) for m in mixers):
        lines.append("windowed layers are taken to read the KV of the whole context")
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        lines.append("latents of a cached prefix aren't expanded again (the absorbed form)")
    return StepRange(fast=ends[0], slow=ends[1], assumptions=tuple(lines))


def _ends(
    model: TimeModel, max_model_tokens: int, max_tokens: int
) -> tuple[StepSeconds, StepSeconds]:
    positions = np.arange(1, max_model_tokens + 1, dtype=np.int64)
    parts = prefill_flops(
        model.spec, positions, np.zeros_like(positions), last_position_only=model.last_position_only
    )
    head = np.zeros(len(positions))
    rest: Float64Array = np.zeros(len(positions))
    for name, part in parts.items():
        if name == "lm_head":
            head = head + part
        else:
            rest = rest + part
    flops_until = np.concatenate([[0.0], rest])
    new = np.arange(1, max_tokens + 1, dtype=np.int64)
    low, high = model.efficiency_band(new)
    peak = model.peak_flops_per_s
    per_token = float(
        kv_bytes_per_token(
            model.spec, kv_cache_dtype=model.kv_cache_dtype, tensor_parallel=model.tensor_parallel
        )
    )
    weights = model.weight_read_bytes(new)
    bandwidth = model.gpu.bandwidth_bytes_per_s
    quick, late = model.overhead_s(new)

    def steps(efficiency: Float64Array, share: float, overhead: Float64Array) -> StepSeconds:
        return StepSeconds(
            flops_until=flops_until,
            sample_flops=float(head[0]) if len(head) else 0.0,
            s_per_flop=np.concatenate([[0.0], 1 / (peak * efficiency)]),
            moved_s=np.concatenate([[0.0], weights / bandwidth / share]),
            token_s=per_token / bandwidth / share,
            overhead_s=np.concatenate([[0.0], overhead]),
        )

    return steps(high, BANDWIDTH_SHARE[1], quick), steps(low, BANDWIDTH_SHARE[0], late)
