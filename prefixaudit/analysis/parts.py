"""Parts of a report that are taken over from what was gathered: files, model, answers, rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from prefixaudit.analysis import figures
from prefixaudit.analysis.gathered import Gathered
from prefixaudit.analysis.sizing import block_size_of
from prefixaudit.core.pool import HitRates, Lookups
from prefixaudit.core.report import GeneratedFacts, LogFacts, ModelFacts, RequestRows, TraceIds
from prefixaudit.core.trace import BlockTrace, Float64Array
from prefixaudit.deployment import Deployment

GeneratedSetting: TypeAlias = Literal["auto", "on", "off"]


def log_facts(gathered: Gathered, trace: BlockTrace | None) -> LogFacts:
    arrivals = np.empty(0) if trace is None else trace.arrival_s[~np.isnan(trace.arrival_s)]
    return LogFacts(
        files=gathered.files,
        num_records=gathered.num_records,
        num_requests=0 if trace is None else trace.num_requests,
        num_skipped=len(gathered.skipped),
        skipped=gathered.skipped,
        num_tenants=None if trace is None else figures.num_tenants(trace.identities),
        first_arrival_s=float(arrivals.min()) if len(arrivals) else None,
        last_arrival_s=float(arrivals.max()) if len(arrivals) else None,
        num_approximate=gathered.num_approximate,
    )


def model_facts(
    deployment: Deployment, kv_bytes: int | None, trace: BlockTrace | None
) -> ModelFacts:
    """Return what is known of the model."""
    name = deployment.identity.model
    if not isinstance(name, str) and trace is not None:
        names = {i.model for i in trace.identities if isinstance(i.model, str)}
        name = names.pop() if len(names) == 1 else None
    return ModelFacts(
        name=name if isinstance(name, str) else None,
        folder=None if deployment.model_dir is None else str(deployment.model_dir),
        kv_bytes_per_token=kv_bytes,
        problem=None if deployment.model is not None else deployment.model_problem or "no model",
    )


def engine_name(deployment: Deployment) -> str | None:
    engine = deployment.engine
    if engine is None:
        return None
    return engine.name if engine.facts_version is None else f"{engine.name} {engine.facts_version}"


def generated_facts(
    gathered: Gathered, trace: BlockTrace | None, setting: GeneratedSetting
) -> GeneratedFacts:
    """Return whether answers enter the pool."""
    return GeneratedFacts(
        setting=setting,
        num_with_answer=gathered.num_with_answer,
        num_without_answer=gathered.num_without_answer,
        num_cached_tokens_generated=0 if trace is None else int(trace.num_generated_tokens.sum()),
    )


def trace_ids(
    gathered: Gathered,
    trace: BlockTrace,
    rates: HitRates,
    deployment: Deployment,
    fields: tuple[str, ...],
    min_recomputed_tokens: int,
) -> TraceIds | None:
    """Return the figures of a log of block ids, None for other logs."""
    if not gathered.trace_blocks:
        return None
    finer: int | None = None
    fewest: float | None = None
    most: float | None = None
    asked, _ = block_size_of(deployment)
    is_asked = deployment.block_size is not None or deployment.engine is not None
    num_prompt_tokens = int(trace.num_prompt_tokens.sum())
    divides = asked < trace.block_size and trace.block_size % asked == 0
    if is_asked and divides and num_prompt_tokens:
        from prefixaudit.pool import finer_block_hits

        hits = finer_block_hits(
            trace,
            trace.namespaces(fields),
            block_size=asked,
            min_recomputed_tokens=min_recomputed_tokens,
        )
        finer = asked
        fewest = int(hits.at_least_tokens.sum()) / num_prompt_tokens
        most = int(hits.at_most_tokens.sum()) / num_prompt_tokens
    return TraceIds(
        num_ids=rates.num_ids,
        num_matched_ids=rates.num_matched_ids,
        id_hit_rate=figures.known_or_none(rates.of_ids),
        full_block_request_hit_rate=figures.known_or_none(rates.of_requests),
        finer_block_size=finer,
        min_token_hit_rate=fewest,
        max_token_hit_rate=most,
    )


def request_rows(
    gathered: Gathered,
    trace: BlockTrace,
    lookups: Lookups,
    prefill: Float64Array | None,
    saved: Float64Array | None,
) -> RequestRows:
    """Return one row for every request or skipped record."""
    rows = gathered.rows
    return RequestRows(
        paths=tuple(rows.paths),
        path=np.array(rows.path, dtype=np.int32),
        line=np.array(rows.line, dtype=np.int64),
        position=np.array(rows.position, dtype=np.int64),
        num_cached_tokens_reported=np.array(gathered.reported_cached_tokens, dtype=np.int64),
        row_request_ids=rows.skipped_request_ids,
        request_ids=trace.request_ids,
        arrival_s=trace.arrival_s,
        num_prompt_tokens=trace.num_prompt_tokens,
        prefill_flops=prefill,
        prefill_flops_saved=saved,
        lookups=lookups,
    )
