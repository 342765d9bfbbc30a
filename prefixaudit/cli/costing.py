"""What `prefixaudit cost` asks and prints: options in, CostEstimate out, text and JSON of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from prefixaudit.cli.tables import Table, labelled, lines_of
from prefixaudit.cost.estimate import CostEstimate, CostQuestion, CostTimes, estimate_cost
from prefixaudit.cost.hardware import find_gpu, find_tier
from prefixaudit.cost.memory import KvGroup
from prefixaudit.cost.pool import PoolEstimate, PoolSettings
from prefixaudit.deployment.hardware import efficiency_range, engine_log_of, measured_prefill
from prefixaudit.deployment.model_folder import read_config_file
from prefixaudit.errors import UsageError
from prefixaudit.families import describe
from prefixaudit.json_text import json_text
from prefixaudit.printable import printable

SCHEMA_VERSION: Final = 1
GIB: Final = 2**30

_COMPONENT_TITLES: Final = {
    "attn_proj": "attention projections",
    "mla_kv_up": "latents expanded to keys and values",
    "attn_core": "attention (QK and PV)",
    "indexer_proj": "indexer projections",
    "indexer_core": "indexer scores",
    "dense_mlp": "MLP",
    "router": "router",
    "experts": "routed experts",
    "shared": "shared experts",
    "shared_gate": "gate of shared experts",
    "lin_proj": "state layers' projections",
    "conv": "state layers' convolutions",
    "lin_core": "state layers' recurrence",
    "ple": "per-layer inputs",
    "lm_head": "LM head",
}
_ENGINES: Final = ("sglang", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The command's options as the user gave them."""

    model: Path
    prompt: int
    cached: int
    gpu: str | None
    tensor_parallel: int
    engine: str
    block_size: int | None
    kv_cache_dtype: str
    memory_share: float | None
    has_hybrid_manager: bool
    max_model_len: int | None
    engine_log: Path | None
    tier: str | None
    lora_rank: int | None
    measured: str | None
    efficiency: str | None
    usd_per_gpu_hour: float | None


def answer(wish: Wish) -> CostEstimate:
    """Return the estimate. Raises ConfigurationError or UsageError for what can't be."""
    if wish.gpu is None:
        for name, value in (
            ("--measured", wish.measured),
            ("--efficiency", wish.efficiency),
            ("--tier", wish.tier),
            ("--usd-per-gpu-hour", wish.usd_per_gpu_hour),
        ):
            if value is not None:
                raise UsageError(f"{name} needs a GPU; give --gpu NAME")
    name, _, version = wish.engine.partition("@")
    if name not in _ENGINES:
        raise UsageError(
            f"what engine {name!r} makes of a GPU isn't known; known: {', '.join(_ENGINES)}"
        )
    question = CostQuestion(
        num_prompt_tokens=wish.prompt,
        num_cached_tokens=wish.cached,
        pool=PoolSettings(
            engine=name,
            version=version or None,
            tensor_parallel=wish.tensor_parallel,
            block_size=wish.block_size,
            kv_cache_dtype=wish.kv_cache_dtype,
            memory_share=wish.memory_share,
            has_hybrid_manager=wish.has_hybrid_manager,
        ),
        gpu=find_gpu(wish.gpu) if wish.gpu is not None else None,
        tier=find_tier(wish.tier) if wish.tier is not None else None,
        max_model_len=wish.max_model_len,
        efficiency=None if wish.efficiency is None else efficiency_range(wish.efficiency),
        measured=None if wish.measured is None else measured_prefill(wish.measured),
        usd_per_gpu_hour=wish.usd_per_gpu_hour,
        engine_log=None if wish.engine_log is None else engine_log_of(wish.engine_log),
        lora_rank=wish.lora_rank,
    )
    return estimate_cost(describe(read_config(wish.model)), question)


def read_config(model: Path) -> Mapping[str, Any]:
    """Return the decoded config.json of a model folder, or the file itself."""
    return read_config_file(model / "config.json" if model.is_dir() else model)


def as_json(estimate: CostEstimate) -> str:
    """Return the estimate as indented JSON, as schemas/cost.schema.json describes it."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "model_type": estimate.model_type,
            "family": estimate.family,
            "num_parameters": estimate.num_parameters,
        },
        "prompt": {
            "num_prompt_tokens": estimate.num_prompt_tokens,
            "num_cached_tokens": estimate.num_cached_tokens,
        },
        # Above 2**53 a reader with doubles only rounds them: totals stand beside as they are.
        "flops": {
            "cold": dict(estimate.flops_cold),
            "hit": dict(estimate.flops_hit),
            "cold_total": estimate.total_cold_flops,
            "hit_total": estimate.total_hit_flops,
            "saved": estimate.saved_flops,
            "saved_share": estimate.saved_share,
            "lora_per_token": estimate.lora_flops_per_token,
        },
        "memory": {
            "kv_cache_dtype": estimate.kv_cache_dtype,
            "tensor_parallel": estimate.tensor_parallel,
            "kv_bytes_per_token": estimate.kv_bytes_per_token,
            "groups": [asdict(group) for group in estimate.kv_groups],
            "kv_bytes_prompt": estimate.kv_bytes_prompt,
            "state_bytes": estimate.state_bytes,
        },
        "pool": asdict(estimate.pool) if estimate.pool is not None else None,
        "times": asdict(estimate.times) if estimate.times is not None else None,
        "position": {
            "digest": estimate.position_digest,
            **asdict(estimate.length_dependence),
        },
        "conventions": estimate.conventions,
        "notes": estimate.notes,
    }
    return json_text(values)


def as_text(estimate: CostEstimate, name: str) -> str:
    """Return the estimate for a terminal, 100 columns wide."""
    new = estimate.num_prompt_tokens - estimate.num_cached_tokens
    lines = [
        f"{printable(name)}: {estimate.model_type}, {estimate.num_parameters / 1e9:,.2f} B "
        "parameters (text)",
        f"prompt {estimate.num_prompt_tokens:,} tokens: {estimate.num_cached_tokens:,} cached, "
        f"{new:,} to compute",
        "",
        *_flops(estimate),
        "",
        *_memory(estimate),
    ]
    if estimate.times is not None:
        lines += ["", *_times(estimate.times)]
    lines += ["", "POSITION", *labelled(_position(estimate))]
    assumptions = list(estimate.conventions)
    if estimate.times is not None:
        assumptions += estimate.times.assumptions
    if estimate.pool is not None:
        assumptions += estimate.pool.assumptions
    lines += ["", "ASSUMED", *labelled([("", text) for text in assumptions])]
    if estimate.notes:
        lines += ["", "NOTE", *labelled([("", text) for text in estimate.notes])]
    return "\n".join(lines)


def _flops(estimate: CostEstimate) -> list[str]:
    unit, divisor = _unit(estimate.total_cold_flops)
    rows = []
    for component, cold in estimate.flops_cold.items():
        hit = estimate.flops_hit.get(component, 0)
        rows.append(_flops_row(_COMPONENT_TITLES[component], cold, hit, divisor))
    rows.append(_flops_row("in all", estimate.total_cold_flops, estimate.total_hit_flops, divisor))
    table = Table(
        heads=(f"PREFILL, {unit}", "without hit", "with hit", "saved", "of it"),
        rows=tuple(rows),
        right=frozenset({1, 2, 3, 4}),
    )
    lines = lines_of(table)
    if estimate.lora_flops_per_token is not None:
        lines.append(
            f"an adapter adds {estimate.lora_flops_per_token / 1e6:,.1f} MFLOP a computed token"
        )
    return lines


def _flops_row(title: str, cold: int, hit: int, divisor: float) -> tuple[str, ...]:
    saved = cold - hit
    share = f"{saved / cold:.1%}" if cold else "-"
    return (
        title,
        f"{cold / divisor:,.3f}",
        f"{hit / divisor:,.3f}",
        f"{saved / divisor:,.3f}",
        share,
    )


def _unit(flops: int) -> tuple[str, float]:
    for unit, divisor in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9)):
        if flops >= divisor:
            return unit, divisor
    return "MFLOP", 1e6


def _memory(estimate: CostEstimate) -> list[str]:
    ranks = estimate.tensor_parallel
    where = f" on each of {ranks} GPUs" if ranks > 1 else ""
    rows = [
        (
            "KV a token",
            f"{estimate.kv_bytes_per_token:,} bytes{where} ({estimate.kv_cache_dtype})",
        ),
        ("this prompt", f"{estimate.kv_bytes_prompt / GIB:,.3f} GiB{where}"),
    ]
    if len(estimate.kv_groups) > 1:
        rows[1:1] = [("", _group(group)) for group in estimate.kv_groups]
    if estimate.state_bytes:
        rows.append(("state a sequence", f"{estimate.state_bytes / 2**20:,.1f} MiB{where}"))
    if estimate.pool is not None:
        rows += _pool(estimate.pool)
    return ["MEMORY", *labelled(rows)]


def _group(group: KvGroup) -> str:
    layers = f"{group.num_layers} layer{'s' if group.num_layers > 1 else ''}"
    match group.kind:
        case "full":
            return f"{group.bytes_per_token:,} in {layers} that keep every token"
        case "window":
            return f"{group.bytes_per_token:,} in {layers} that keep the last {group.span:,}"
        case "chunk":
            return f"{group.bytes_per_token:,} in {layers} that keep a chunk of {group.span:,}"
        case "state":
            return f"0 in {layers} that keep a state"


def _pool(pool: PoolEstimate) -> list[tuple[str, str]]:
    said = {
        "engine-log": "by the engine's log",
        "setting": "by the setting",
        "estimate": "estimated",
    }[pool.source]
    return [
        ("block", f"{pool.block_size:,} tokens, {pool.bytes_per_block / 2**20:,.2f} MiB"),
        (
            "pool",
            f"{_span(pool.num_blocks, '{:,.0f}')} blocks, "
            f"{_span(pool.num_tokens, '{:,.0f}')} tokens, "
            f"{_span(pool.kv_bytes, '{:,.1f}', GIB)} GiB ({pool.engine}, {said})",
        ),
        ("weights", f"{pool.weight_bytes / GIB:,.1f} GiB in all"),
    ]


def _times(times: CostTimes) -> list[str]:
    hit = _span(times.efficiency_hit, "{:.2f}")
    cold = _span(times.efficiency_cold, "{:.2f}")
    rows = [
        ("prefill without hit", f"{_seconds(times.prefill_cold_s)} at {cold} of the peak"),
        ("prefill with hit", f"{_seconds(times.prefill_hit_s)} at {hit} of the peak"),
        ("lookup, fetch", f"{_seconds(times.lookup_s)}, {_seconds(times.fetch_s)}"),
        (
            "time to first token",
            f"{_seconds(times.ttft_hit_s)} instead of {_seconds(times.ttft_cold_s)}, "
            "queueing left out",
        ),
        ("saved, alone", _seconds(times.saved_s)),
        (
            "saved, in full batches",
            f"{_seconds(times.gpu_s_saved)} of {_seconds(times.gpu_s_cold)} GPU time",
        ),
    ]
    if times.usd_saved is not None:
        lo, hi = times.usd_saved
        rows.append(("worth", f"{lo * 1e6:,.2f} to {hi * 1e6:,.2f} USD a million such prompts"))
    rows.append(
        (
            "weight floor",
            f"{times.weight_floor_s * 1e3:,.1f} ms to read all weights once; below about "
            f"{times.ridge_tokens:,.0f} tokens reading them takes longer than computing (bf16)",
        )
    )
    if times.break_even_bytes_per_s is not None:
        rows.append(
            (
                "fetch or recompute",
                f"even at {_span(times.break_even_bytes_per_s, '{:,.1f}', 1e9)} GB/s in all; by "
                "tier from a prefix of",
            )
        )
        for item in times.break_even:
            rows.append(("", f"{_tokens(item.num_tokens)}  {item.tier}: {item.title}"))
    if times.is_too_short:
        rows.append(("this hit", "is too short to save time, even at best"))
    return ["TIME", *labelled(rows)]


def _tokens(span: tuple[int | None, int | None]) -> str:
    if span[0] is None:
        return "no length"
    worst = f"{span[1]:,}" if span[1] is not None else "no length"
    return f"{span[0]:,} to {worst} tokens"


def _position(estimate: CostEstimate) -> Sequence[tuple[str, str]]:
    dependence = estimate.length_dependence
    safe = "" if dependence.is_safe else "; reuse across lengths is UNSAFE"
    return [
        ("digest", estimate.position_digest),
        ("rotary type", f"{dependence.rope_type}: {dependence.reason}{safe}"),
    ]


def _span(span: tuple[float, float], form: str, divisor: float = 1.0) -> str:
    lo, hi = (form.format(number / divisor) for number in span)
    return lo if lo == hi else f"{lo} to {hi}"


def _seconds(span: tuple[float, float]) -> str:
    largest = max(abs(number) for number in span)
    if largest < 1:
        lo, hi = (f"{number * 1e3:,.1f}" for number in span)
        unit = "ms"
    else:
        lo, hi = (f"{number:,.2f}" for number in span)
        unit = "s"
    return f"{lo} {unit}" if lo == hi else f"{lo} to {hi} {unit}"
