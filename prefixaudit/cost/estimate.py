"""All that one prompt costs, with and without a cached prefix: the value behind `prefixaudit cost`.

FLOPs are one exact number with their convention; bytes follow the engine's rule; seconds, blocks
and money are ranges, and `assumptions` says what they rest on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from prefixaudit.core.model import Attention, CacheSpec, LatentAttention, ModelSpec
from prefixaudit.cost.engine_log import EngineLog
from prefixaudit.cost.flops import flop_terms, prefill_flops, total_flops
from prefixaudit.cost.hardware import Gpu, Tier, load_hardware
from prefixaudit.cost.lora import lora_flops_per_token
from prefixaudit.cost.memory import (
    KvGroup,
    kv_bytes_per_token,
    kv_dtype,
    kv_groups,
    sequence_bytes,
    state_bytes,
)
from prefixaudit.cost.pool import PoolEstimate, PoolSettings, estimate_pool
from prefixaudit.cost.position import LengthDependence, length_dependence, position_digest
from prefixaudit.cost.savings import (
    break_even_bandwidth,
    break_even_tokens,
    hit_times,
)
from prefixaudit.cost.time import MeasuredPrefill, Seconds, TimeModel, default_compute_type
from prefixaudit.cost.weights import num_parameters
from prefixaudit.errors import UsageError

FLOPS_CONVENTION: Final = (
    "one multiply-add is 2 FLOPs; attention counted causally; LM head once a prompt; "
    "LoRA, vision and audio left out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuestion:
    """What is asked: a prompt, its cached part, and where it runs. None: not given."""

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    pool: PoolSettings = PoolSettings()
    gpu: Gpu | None = None
    tier: Tier | None = None
    max_model_len: int | None = None
    efficiency: tuple[float, float] | None = None
    measured: MeasuredPrefill | None = None
    usd_per_gpu_hour: float | None = None
    engine_log: EngineLog | None = None
    lora_rank: int | None = None
    lora_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBreakEven:
    """Below `num_tokens` cached tokens a fetch from a tier takes longer than computing them.

    (at best, at worst); None: no prefix up to 2**20 tokens is worth it.
    """

    tier: str
    title: str
    num_tokens: tuple[int | None, int | None]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTimes:
    """Ranges (low, high) in seconds for the prompt alone on an idle engine, and in full batches.

    gpu_s_cold, gpu_s_hit, gpu_s_saved  GPU seconds of all ranks at saturation
    usd_saved                           of one such prompt at saturation, None without a price
    break_even_bytes_per_s              at a share of 0.3 to 0.6 of the peak; None without a hit
    """

    prefill_cold_s: tuple[float, float]
    prefill_hit_s: tuple[float, float]
    lookup_s: tuple[float, float]
    fetch_s: tuple[float, float]
    ttft_cold_s: tuple[float, float]
    ttft_hit_s: tuple[float, float]
    saved_s: tuple[float, float]
    gpu_s_cold: tuple[float, float]
    gpu_s_hit: tuple[float, float]
    gpu_s_saved: tuple[float, float]
    usd_saved: tuple[float, float] | None
    efficiency_cold: tuple[float, float]
    efficiency_hit: tuple[float, float]
    weight_floor_s: float
    ridge_tokens: float
    break_even_bytes_per_s: tuple[float, float] | None
    break_even: tuple[TierBreakEven, ...]
    is_too_short: bool
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """The answer. FLOPs are exact and by component; bytes are those of one rank."""

    model_type: str
    family: str
    num_parameters: int
    num_prompt_tokens: int
    num_cached_tokens: int
    flops_cold: Mapping[str, int]
    flops_hit: Mapping[str, int]
    lora_flops_per_token: int | None
    kv_cache_dtype: str
    tensor_parallel: int
    kv_bytes_per_token: int
    kv_groups: tuple[KvGroup, ...]
    kv_bytes_prompt: int
    state_bytes: int
    pool: PoolEstimate | None
    times: CostTimes | None
    position_digest: str
    length_dependence: LengthDependence
    conventions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def total_cold_flops(self) -> int:
        return total_flops(self.flops_cold)

    @property
    def total_hit_flops(self) -> int:
        return total_flops(self.flops_hit)

    @property
    def saved_flops(self) -> int:
        return self.total_cold_flops - self.total_hit_flops

    @property
    def saved_share(self) -> float:
        return self.saved_flops / self.total_cold_flops


def estimate_cost(spec: ModelSpec, question: CostQuestion) -> CostEstimate:
    """Return what a prompt costs. Raises UsageError for a prompt that can't be.

    Raises ConfigurationError where weights don't fit or a setting isn't known.
    """
    prompt, cached = question.num_prompt_tokens, question.num_cached_tokens
    if prompt < 1:
        raise UsageError("a prompt has 1 token or more")
    if not 0 <= cached < prompt:
        raise UsageError(
            f"{cached:,} cached tokens of a prompt of {prompt:,}: at least one token is always "
            f"computed, so 0 to {prompt - 1:,} can be cached"
        )
    settings = question.pool
    check_ranks(spec.cache, settings.tensor_parallel)
    extra = None
    if question.lora_rank is not None:
        extra = lora_flops_per_token(spec, rank=question.lora_rank, modules=question.lora_modules)
    pool = None
    log = question.engine_log
    is_sized = settings.kv_cache_memory_bytes is not None or (log is not None and log.has_size)
    if question.gpu is not None or is_sized:
        pool = estimate_pool(spec, settings, gpu=question.gpu, log=log)
    said = log.block_size if log is not None else None
    block_size = pool.block_size if pool is not None else said or settings.block_size or 16
    times = _times(spec, question, block_size) if question.gpu is not None else None
    return CostEstimate(
        model_type=spec.model_type,
        family=spec.family,
        num_parameters=num_parameters(spec),
        num_prompt_tokens=prompt,
        num_cached_tokens=cached,
        flops_cold=MappingProxyType(prefill_flops(spec, prompt, 0)),
        flops_hit=MappingProxyType(prefill_flops(spec, prompt - cached, cached)),
        lora_flops_per_token=extra,
        kv_cache_dtype=kv_dtype(spec, settings.kv_cache_dtype),
        tensor_parallel=settings.tensor_parallel,
        kv_bytes_per_token=kv_bytes_per_token(
            spec,
            kv_cache_dtype=settings.kv_cache_dtype,
            tensor_parallel=settings.tensor_parallel,
        ),
        kv_groups=kv_groups(
            spec,
            kv_cache_dtype=settings.kv_cache_dtype,
            tensor_parallel=settings.tensor_parallel,
        ),
        kv_bytes_prompt=sequence_bytes(
            spec,
            prompt,
            kv_cache_dtype=settings.kv_cache_dtype,
            tensor_parallel=settings.tensor_parallel,
            has_hybrid_manager=settings.has_hybrid_manager,
        ),
        state_bytes=state_bytes(spec, tensor_parallel=settings.tensor_parallel),
        pool=pool,
        times=times,
        position_digest=position_digest(spec),
        length_dependence=length_dependence(
            spec,
            engine=settings.engine,
            version=settings.version,
            max_model_len=question.max_model_len,
        ),
        conventions=(FLOPS_CONVENTION, *_conventions(spec)),
        notes=tuple(_notes(spec, prompt, cached, block_size)),
    )


def _conventions(spec: ModelSpec) -> Sequence[str]:
    terms = flop_terms(spec)
    lines = []
    if terms.last_token:
        lines.append(
            "layers that reuse earlier keys compute the last position only (transformers; vLLM "
            "with kv_sharing_fast_prefill)"
        )
    if "indexer_core" in {name for name, _ in terms.per_pair}:
        lines.append("sparse attention in its dense form, as the reference computes it")
    if any(name == "lin_core" for name in terms.per_token):
        lines.append("state layers in their recurrent form")
    if terms.per_context_token:
        lines.append("latents of the cached prefix are expanded again: no hit saves that")
    return lines


def _notes(spec: ModelSpec, prompt: int, cached: int, block_size: int) -> Iterator[str]:
    whole = cached // block_size * block_size
    if whole != cached:
        yield (
            f"{cached:,} is no multiple of the block of {block_size:,} tokens: an engine serves "
            f"{whole:,} of them"
        )
    longest = spec.position.max_position_embeddings
    if longest is not None and prompt > longest:
        yield f"the model's positions end at {longest:,}: the prompt is longer"


def check_ranks(cache: CacheSpec, ranks: int) -> None:
    """Raise UsageError where `ranks` GPUs can't share the attention heads evenly."""
    for mixer in cache.mixers:
        if isinstance(mixer, Attention | LatentAttention) and mixer.num_heads % ranks:
            raise UsageError(
                f"{ranks} GPUs can't share {mixer.num_heads} attention heads evenly; "
                "tensor parallelism needs a divisor of them"
            )


def _times(spec: ModelSpec, question: CostQuestion, block_size: int) -> CostTimes:
    assert question.gpu is not None
    settings = question.pool
    model = TimeModel(
        spec=spec,
        gpu=question.gpu,
        tensor_parallel=settings.tensor_parallel,
        compute_type=default_compute_type(spec, question.gpu),
        kv_cache_dtype=settings.kv_cache_dtype,
        efficiency=question.efficiency,
        measured=question.measured,
    )
    prompt, cached = np.array([question.num_prompt_tokens]), np.array([question.num_cached_tokens])
    times = hit_times(model, prompt, cached, tier=question.tier, block_size=block_size)
    cold, hit = (
        prefill_flops(spec, int(prompt[0]), 0),
        prefill_flops(spec, int(prompt[0] - cached[0]), int(cached[0])),
    )
    saved = total_flops(cold) - total_flops(hit)
    gpu_saved = model.gpu_s_at_saturation(float(saved))
    usd = None
    if question.usd_per_gpu_hour is not None:
        usd = (
            gpu_saved[0] / 3600 * question.usd_per_gpu_hour,
            gpu_saved[1] / 3600 * question.usd_per_gpu_hour,
        )
    num_cached = int(cached[0])
    return CostTimes(
        prefill_cold_s=_first(model.prefill_s(prompt, np.zeros_like(prompt))),
        prefill_hit_s=_first(model.prefill_s(prompt - cached, cached)),
        lookup_s=_first(times.lookup),
        fetch_s=_first(times.fetch),
        ttft_cold_s=_first(times.ttft_cold),
        ttft_hit_s=_first(times.ttft_hit),
        saved_s=_first(times.saved),
        gpu_s_cold=model.gpu_s_at_saturation(float(total_flops(cold))),
        gpu_s_hit=model.gpu_s_at_saturation(float(total_flops(hit))),
        gpu_s_saved=gpu_saved,
        usd_saved=usd,
        efficiency_cold=_band(model, int(prompt[0])),
        efficiency_hit=_band(model, int(prompt[0]) - num_cached),
        weight_floor_s=model.weight_floor_s,
        ridge_tokens=question.gpu.ridge_tokens,
        break_even_bytes_per_s=break_even_bandwidth(model, num_cached) if num_cached else None,
        break_even=tuple(
            TierBreakEven(
                tier=name,
                title=tier.title,
                num_tokens=break_even_tokens(model, tier),
                source=tier.source,
            )
            for name, tier in load_hardware().tiers.items()
        ),
        is_too_short=bool(num_cached and times.num_too_short),
        assumptions=model.assumptions,
    )


def _first(seconds: Seconds) -> tuple[float, float]:
    return float(seconds.lo[0]), float(seconds.hi[0])


def _band(model: TimeModel, num_new_tokens: int) -> tuple[float, float]:
    lo, hi = model.efficiency_band(num_new_tokens)
    return float(lo), float(hi)
