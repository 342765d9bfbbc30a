"""The standard report: a small log with one of everything, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prefixaudit.core.pool import Lookups
from prefixaudit.core.report import (
    Agreement,
    CurvePoint,
    GeneratedFacts,
    HitLength,
    Hits,
    LogFacts,
    ModelFacts,
    PoolSetting,
    ReadFile,
    Report,
    RequestRows,
    UnknownField,
)
from prefixaudit.core.request import Skipped, Source

HOSTILE = "bad\x1b[31m\r\n\u202e[/red]\x07name"


def hits(num_cached_tokens: int) -> Hits:
    return Hits(
        num_cached_tokens=num_cached_tokens,
        token_hit_rate=num_cached_tokens / 4000,
        request_hit_rate=0.75,
        block_hit_rate=0.5,
        mean_request_hit_rate=0.25,
        second_half_token_hit_rate=0.6,
        prefill_flops_saved=num_cached_tokens * 1e12,
        flops_saved_share=num_cached_tokens / 5000,
    )


def standard_report(**changes: Any) -> Report:
    report = Report(
        version="0.1.0",
        deployment_path="prefixaudit.toml",
        log=LogFacts(
            files=(ReadFile(path=HOSTILE, format="openai", num_bytes=1_900_000_000),),
            num_records=5,
            num_requests=4,
            num_skipped=1,
            skipped=(
                Skipped(source=Source(HOSTILE, 3), kind="cut-line", reason=f"no end {HOSTILE}"),
            ),
            num_tenants=2,
            first_arrival_s=0.0,
            last_arrival_s=86_280.0,
            num_approximate=0,
        ),
        model=ModelFacts(name=HOSTILE, folder="m", kv_bytes_per_token=131_072, problem=None),
        pool=PoolSetting(
            engine="vllm 0.33.0",
            engine_notes=(),
            block_size=16,
            block_size_origin="engine",
            min_recomputed_tokens=1,
            key_fields=("lora_name",),
            capacity_blocks=100,
            capacity_bytes=100 * 16 * 131_072,
            num_distinct_blocks=500,
            simulation="LRU",
        ),
        num_prompt_tokens=4000,
        prefill_flops=5e15,
        this_pool=hits(2000),
        endless_pool=hits(3000),
        trace_ids=None,
        hit_length=HitLength(p50=160, p90=320, p99=960, max=960, histogram=((0, 1), (16, 3))),
        curve=tuple(
            CurvePoint(
                capacity_blocks=size,
                capacity_bytes=size * 16 * 131_072,
                num_cached_tokens=tokens,
                token_hit_rate=tokens / 4000,
                flops_saved_share=tokens / 5000,
                marks=("this-pool",) if size == 100 else ("knee", "endless") if size == 400 else (),
            )
            for size, tokens in ((0, 0), (1, 0), (10, 400), (100, 2000), (400, 3000))
        ),
        prompt_agreement=Agreement(
            num_compared=4,
            num_equal=3,
            num_more=1,
            num_less=0,
            reported_tokens=3990,
            replayed_tokens=4000,
        ),
        cached_agreement=None,
        generated=GeneratedFacts(
            setting="auto",
            num_with_answer=0,
            num_without_answer=4,
            num_cached_tokens_generated=0,
        ),
        unknown_fields=(
            UnknownField(field="lora_revision", kind="content", about="revision", num_requests=4),
            UnknownField(field="tenant", kind="isolation", about="who", num_requests=1),
        ),
        replay_notes=(),
        notes=(f"a note about {HOSTILE}",),
        rows=_rows(),
    )
    return replace(report, **changes) if changes else report


def _rows() -> RequestRows:
    return RequestRows(
        paths=(HOSTILE,),
        path=np.zeros(5, dtype=np.int32),
        line=np.arange(1, 6, dtype=np.int64),
        position=np.array([0, 1, -1, 2, 3], dtype=np.int64),
        num_cached_tokens_reported=np.array([-1, 0, 16, -1], dtype=np.int64),
        row_request_ids={},
        request_ids=("a", "b", HOSTILE, "d"),
        arrival_s=np.array([0.0, 1.5, np.nan, 3.0]),
        num_prompt_tokens=np.array([1000, 1000, 1000, 1000], dtype=np.int64),
        prefill_flops=None,
        prefill_flops_saved=None,
        lookups=Lookups(
            num_cached_tokens=np.array([0, 960, 32, 0], dtype=np.int64),
            donor_offsets=np.array([0, 0, 1, 3, 3], dtype=np.int64),
            donors=np.array([0, 1, 0], dtype=np.int32),
            donor_num_tokens=np.array([960, 16, 16], dtype=np.int64),
        ),
    )
