"""From a GPU to a pool and to seconds: what one replica of the model can hold and do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prefixaudit.core.model import ModelSpec
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.cost.blocks import vllm_layout
from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.pool import PoolEstimate, PoolSettings, estimate_pool
from prefixaudit.cost.time import TimeModel, default_compute_type
from prefixaudit.deployment import Deployment
from prefixaudit.plan.options import GpuChoice, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One replica's GPUs: times, and the pool as the engine would size it."""

    choice: GpuChoice
    model: TimeModel
    pool: PoolEstimate
    kv_cache_dtype: str

    def capacity_blocks(self, block_size: int) -> tuple[int, int]:
        """Return the usable blocks of `block_size` tokens, fewest and most (no null block).

        Blocks of a model with several groups hold tokens of one group each.
        """
        if self.has_groups:
            fewest, most = self.pool.num_blocks
            return max(fewest - 1, 0), max(most - 1, 0)
        own = self.pool.block_size
        lo, hi = ((number - own) // block_size for number in self.pool.num_tokens)
        return max(lo, 0), max(hi, 0)

    @property
    def has_groups(self) -> bool:
        return vllm_layout(self.model.spec).num_groups > 1

    @property
    def title(self) -> str:
        dtype = "" if self.kv_cache_dtype == "auto" else f", {self.kv_cache_dtype} KV"
        return f"{self.choice.tensor_parallel} x {self.model.gpu.title}{dtype}"


def with_deployed(options: PlanOptions, deployment: Deployment) -> PlanOptions:
    """Return the options with the deployment's GPUs, price and measurement where none are given."""
    facts = deployment.hardware
    if facts is None:
        return options
    changes: dict[str, Any] = {}
    if not options.gpus and facts.gpu is not None and deployment.model is not None:
        own = GpuChoice(name=facts.gpu.name, tensor_parallel=deployment.tensor_parallel)
        changes["gpus"] = (own,)
    if options.usd_per_gpu_hour is None:
        changes["usd_per_gpu_hour"] = facts.usd_per_gpu_hour
    if options.measured_prefill is None and options.efficiency is None:
        changes |= {"measured_prefill": facts.measured, "efficiency": facts.efficiency}
    return replace(options, **changes)


def deployed_kv_dtype(deployment: Deployment) -> str:
    """Return the deployment's KV type as the cost model names it; auto where it isn't known."""
    value = deployment.identity.kv_cache_dtype
    return "auto" if value is UNKNOWN or value is None else value


def hardware_of(
    spec: ModelSpec,
    deployment: Deployment,
    options: PlanOptions,
    choice: GpuChoice,
    *,
    kv_cache_dtype: str | None = None,
) -> Hardware:
    """Return one replica. Raises UsageError for an unknown GPU, ConfigurationError for a small one.

    vLLM's rule sizes the pool where the engine is no SGLang.
    """
    gpu = find_gpu(choice.name)
    dtype = kv_cache_dtype or deployed_kv_dtype(deployment)
    engine = deployment.engine
    is_sglang = engine is not None and engine.name == "sglang"
    settings = PoolSettings(
        engine="sglang" if is_sglang else "vllm",
        version=engine.facts_version if engine is not None and engine.name == "vllm" else None,
        tensor_parallel=choice.tensor_parallel,
        kv_cache_dtype=dtype,
        memory_share=deployment.memory_share,
    )
    return Hardware(
        choice=choice,
        model=TimeModel(
            spec=spec,
            gpu=gpu,
            tensor_parallel=choice.tensor_parallel,
            compute_type=default_compute_type(spec, gpu),
            kv_cache_dtype=dtype,
            efficiency=options.efficiency,
            measured=options.measured_prefill,
        ),
        pool=estimate_pool(spec, settings, gpu=gpu),
        kv_cache_dtype=dtype,
    )


def block_bytes(spec: ModelSpec | None, dtype: str, block_size: int) -> int | None:
    """Return the bytes of a block, all ranks together; None without a model."""
    if spec is None:
        return None
    layout = vllm_layout(spec, block_size=block_size, kv_cache_dtype=dtype)
    if layout.num_groups > 1 and layout.block_size == block_size:
        return layout.bytes_per_block
    return kv_bytes_per_token(spec, kv_cache_dtype=dtype) * block_size
