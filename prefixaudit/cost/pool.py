"""How many blocks fit in a GPU: a range from an estimate, or the engine's own word.

vLLM profiles a forward pass and keeps what is left of `gpu_memory_utilization`
(`vllm/v1/worker/gpu_worker.py`, `determine_available_memory`):

    kv bytes = ceil(memory * utilization) - weights - peak activation - non-torch - CUDA graphs

SGLang keeps what is free after loading but for a static share (`model_runner.py`,
`profile_max_num_token`), in cells of one token. Activation and graphs can't be known offline: 1.7
to 7.1 GiB were seen in logs, so the estimate is a range, and the engine's own log beats it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from packaging.version import InvalidVersion, Version

from prefixaudit.core.model import ModelSpec
from prefixaudit.cost.blocks import BlockLayout, vllm_layout
from prefixaudit.cost.engine_log import EngineLog
from prefixaudit.cost.hardware import Gpu
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.weights import weight_bytes
from prefixaudit.errors import ConfigurationError

PoolSource: TypeAlias = Literal["engine-log", "setting", "estimate"]

GIB: Final = 2**30

# Activation, non-torch memory and CUDA graphs together, a rank.
OVERHEAD_BYTES: Final = (3 * GIB // 2, 8 * GIB)

# `mem_fraction_static` where it isn't given: SGLang derives it from GPU and parallelism.
_SGLANG_STATIC: Final = (0.80, 0.90)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEstimate:
    """One rank's pool as (low, high); both are equal where `source` isn't "estimate".

    `num_tokens` is what the engine would log; blocks of a mixed model hold tokens of one group of
    layers each, so it isn't num_blocks * block_size there.
    """

    engine: str
    source: PoolSource
    block_size: int
    num_blocks: tuple[int, int]
    num_tokens: tuple[int, int]
    bytes_per_block: int
    kv_bytes: tuple[int, int]
    weight_bytes: int
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What an operator sets; None where it is left to the engine."""

    engine: str = "vllm"
    version: str | None = None
    tensor_parallel: int = 1
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    memory_share: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_blocks_override: int | None = None
    has_hybrid_manager: bool = True


def default_utilization(version: str | None) -> tuple[float, float]:
    """Return the range of vLLM's default `gpu_memory_utilization`: 0.90 up to 0.11, 0.92 in 0.33.

    Releases between them changed it somewhere, so they get both.
    """
    if version is None:
        return 0.90, 0.92
    try:
        release = Version(version).release
    except InvalidVersion:
        raise ConfigurationError(f"{version!r} is not a version; 0.33.0 is one") from None
    if release < (0, 12):
        return 0.90, 0.90
    if release >= (0, 33):
        return 0.92, 0.92
    return 0.90, 0.92


def estimate_pool(
    spec: ModelSpec,
    settings: PoolSettings,
    *,
    gpu: Gpu | None = None,
    log: EngineLog | None = None,
) -> PoolEstimate:
    """Return one rank's pool: from the engine's log, from a setting, or estimated for a GPU.

    Raises ConfigurationError where none of these is given, where the weights alone don't fit, and
    for an engine whose rule isn't known.
    """
    assumptions: list[str] = []
    if log is not None and log.block_size is not None and not log.has_size:
        settings = replace(settings, block_size=log.block_size)
        assumptions.append(f"blocks of {log.block_size} tokens, as the engine's log says")
    match settings.engine:
        case "vllm":
            layout = vllm_layout(
                spec,
                block_size=settings.block_size or 16,
                kv_cache_dtype=settings.kv_cache_dtype,
                tensor_parallel=settings.tensor_parallel,
                has_hybrid_manager=settings.has_hybrid_manager,
            )
        case "sglang":
            layout = _sglang_layout(spec, settings, assumptions)
        case other:
            raise ConfigurationError(
                f"the pool size of engine {other!r} can't be estimated; known: sglang, vllm"
            )
    if layout.num_groups > 1:
        assumptions.append(
            f"{layout.num_groups} groups of {layout.group_size} layers share the blocks: "
            "a token takes a block of each group"
        )
    if spec.num_draft_layers:
        assumptions.append(
            f"the {spec.num_draft_layers} draft layers of the files are not loaded; "
            "with speculative decoding they take weights and KV of their own"
        )
    if log is not None and not log.is_empty:
        said = _from_log(spec, settings, layout, log, assumptions)
        if said is not None:
            return said
    if settings.num_blocks_override is not None:
        return _pool(
            spec, settings, layout, "setting", (settings.num_blocks_override,) * 2, assumptions
        )
    if settings.kv_cache_memory_bytes is not None:
        blocks = layout.num_blocks(settings.kv_cache_memory_bytes)
        return _pool(spec, settings, layout, "setting", (blocks, blocks), assumptions)
    if gpu is None:
        raise ConfigurationError(
            "the pool's size needs a GPU, the engine's start-up log, or a number of blocks"
        )
    lo, hi = _free_bytes(spec, settings, gpu, assumptions)
    if hi <= 0:
        raise ConfigurationError(
            f"the weights ({weight_bytes(spec) / settings.tensor_parallel / GIB:.1f} GiB a GPU) "
            f"leave no room for KV on {settings.tensor_parallel} x {gpu.title}; give more GPUs "
            "(--tp)"
        )
    blocks_lo, blocks_hi = layout.num_blocks(max(lo, 0)), layout.num_blocks(hi)
    return _pool(spec, settings, layout, "estimate", (blocks_lo, blocks_hi), assumptions)


def _free_bytes(
    spec: ModelSpec, settings: PoolSettings, gpu: Gpu, assumptions: list[str]
) -> tuple[int, int]:
    weights = math.ceil(weight_bytes(spec) / settings.tensor_parallel)
    if settings.engine == "sglang":
        shares = _shares(settings.memory_share, _SGLANG_STATIC)
        assumptions.append(f"mem_fraction_static {_range_text(shares)}")
        # The rest of the GPU is left for activations and graphs by that share.
        lo, hi = (
            int(size * share) - weights
            for size, share in zip(gpu.memory_bytes, shares, strict=True)
        )
        return lo, hi
    shares = _shares(settings.memory_share, default_utilization(settings.version))
    assumptions.append(f"gpu_memory_utilization {_range_text(shares)}")
    assumptions.append(
        f"activations, non-torch memory and CUDA graphs take {OVERHEAD_BYTES[0] / GIB:g} to "
        f"{OVERHEAD_BYTES[1] / GIB:g} GiB a GPU"
    )
    lo = math.ceil(gpu.memory_bytes[0] * shares[0]) - weights - OVERHEAD_BYTES[1]
    hi = math.ceil(gpu.memory_bytes[1] * shares[1]) - weights - OVERHEAD_BYTES[0]
    return lo, hi


def _shares(given: float | None, default: tuple[float, float]) -> tuple[float, float]:
    return default if given is None else (given, given)


def _range_text(shares: tuple[float, float]) -> str:
    lo, hi = shares
    return f"{lo:g} assumed" if lo == hi else f"{lo:g} to {hi:g} assumed"


def _sglang_layout(spec: ModelSpec, settings: PoolSettings, assumptions: list[str]) -> BlockLayout:
    """Return cells of one token, all layers together; the page size only rounds."""
    page = settings.block_size or 1
    per_token = kv_bytes_per_token(
        spec,
        kv_cache_dtype=settings.kv_cache_dtype,
        tensor_parallel=settings.tensor_parallel,
    )
    if not per_token:
        raise ConfigurationError(f"{spec.model_type} keeps no KV a token")
    plain = vllm_layout(
        spec,
        block_size=page,
        kv_cache_dtype=settings.kv_cache_dtype,
        tensor_parallel=settings.tensor_parallel,
        has_hybrid_manager=False,
    )
    if len(plain.groups) > 1 or any(group.span for group in plain.groups):
        assumptions.append("windows and states get pools of their own in SGLang: not modelled")
    full = [group for group in plain.groups if group.kind == "full"]
    return BlockLayout(
        block_size=page,
        group_size=sum(group.num_layers for group in full),
        groups=(full[0],),
        bytes_per_block=per_token * page,
    )


def _from_log(
    spec: ModelSpec,
    settings: PoolSettings,
    layout: BlockLayout,
    log: EngineLog,
    assumptions: list[str],
) -> PoolEstimate | None:
    """Return what the engine itself said, None where the log holds no size."""
    block_size = log.block_size or layout.block_size
    if block_size != layout.block_size:
        assumptions.append(
            f"the engine set blocks of {block_size} tokens; by its rule they would have "
            f"{layout.block_size} here"
        )
    if log.num_blocks is not None:
        blocks = log.num_blocks
    elif log.num_tokens is not None:
        blocks = math.ceil(log.num_tokens / block_size) * layout.num_groups
    elif log.kv_bytes is not None:
        blocks = layout.num_blocks(log.kv_bytes)
    else:
        return None
    tokens = log.num_tokens
    if tokens is None:
        tokens = blocks // layout.num_groups * block_size
    assumptions.append("the engine's own start-up log counts, not an estimate")
    size = layout.bytes_per_block * block_size // layout.block_size
    return PoolEstimate(
        engine=settings.engine,
        source="engine-log",
        block_size=block_size,
        num_blocks=(blocks, blocks),
        num_tokens=(tokens, tokens),
        bytes_per_block=size,
        kv_bytes=(blocks * size, blocks * size),
        weight_bytes=weight_bytes(spec),
        assumptions=tuple(assumptions),
    )


def _pool(
    spec: ModelSpec,
    settings: PoolSettings,
    layout: BlockLayout,
    source: PoolSource,
    blocks: tuple[int, int],
    assumptions: list[str],
) -> PoolEstimate:
    return PoolEstimate(
        engine=settings.engine,
        source=source,
        block_size=layout.block_size,
        num_blocks=blocks,
        num_tokens=(layout.num_tokens(blocks[0]), layout.num_tokens(blocks[1])),
        bytes_per_block=layout.bytes_per_block,
        kv_bytes=(blocks[0] * layout.bytes_per_block, blocks[1] * layout.bytes_per_block),
        weight_bytes=weight_bytes(spec),
        assumptions=tuple(assumptions),
    )
