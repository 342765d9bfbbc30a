"""Puts a report together: simulates the pool and gathers every figure and note."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import prefixaudit
from prefixaudit.analysis import figures
from prefixaudit.analysis.gathered import Compared, Gathered
from prefixaudit.analysis.log_facts import log_facts_of
from prefixaudit.analysis.notes import notes_for, notes_of_facts
from prefixaudit.analysis.parts import (
    GeneratedSetting,
    engine_name,
    generated_facts,
    log_facts,
    model_facts,
    request_rows,
    trace_ids,
)
from prefixaudit.analysis.reporting_servers import reported_of
from prefixaudit.analysis.simulating import lookups_at, simulate
from prefixaudit.analysis.sizing import kv_bytes_per_token, pool_size
from prefixaudit.analysis.timing import fork_facts, time_facts
from prefixaudit.core.identity import CONTENT_FIELDS
from prefixaudit.core.pool import HitRates, Lookups
from prefixaudit.core.report import (
    Hits,
    PoolSetting,
    Report,
    RequestRows,
)
from prefixaudit.core.trace import BlockTrace, Float64Array
from prefixaudit.deployment import Deployment

if TYPE_CHECKING:
    from prefixaudit.analysis.auditing import Auditing
    from prefixaudit.analysis.reasons import Reasons
    from prefixaudit.analysis.warming import Warming
    from prefixaudit.core.model import ModelSpec

# Where no engine is given: all that changes the KV, and what a request itself asks to be apart.
_DEFAULT_KEY = (*CONTENT_FIELDS, "cache_salt", "extra_key")


def key_fields(deployment: Deployment) -> tuple[str, ...]:
    """Return the identity fields that separate blocks in this deployment's pool.

    An engine's own key, and what its process's life holds apart (but not what events changed while
    it ran); the name of the base model too, since each is served by processes of its own. Without
    an engine: everything that changes the KV, and the salt.
    """
    engine = deployment.engine
    if engine is None:
        return _DEFAULT_KEY
    changed = () if deployment.timeline is None else deployment.timeline.changed_fields
    process = [name for name in ("model", *engine.process_fields) if name not in changed]
    return tuple(dict.fromkeys(("model", *engine.key_fields, *process)))


def full_report(
    gathered: Gathered,
    trace: BlockTrace,
    deployment: Deployment,
    setting: GeneratedSetting,
    auditing: Auditing | None = None,
    reasons: Reasons | None = None,
    warming: Warming | None = None,
) -> Report:
    model = deployment.model
    kv_bytes = kv_bytes_per_token(deployment)
    size = pool_size(deployment, trace.block_size)
    capacity_blocks = size.capacity_blocks
    engine = deployment.engine
    min_recomputed = 1 if engine is None else engine.min_recomputed_tokens
    fields = key_fields(deployment)
    num_prompt_tokens = int(trace.num_prompt_tokens.sum())
    full_blocks = trace.num_prompt_tokens // trace.block_size
    depths: Float64Array | None = None
    per_request: Float64Array | None = None
    saved_per_request: Float64Array | None = None
    prefill: float | None = None
    if model is not None:
        from prefixaudit.cost.flops import flops_by_depth, saved_flops

        longest = int(full_blocks.max(initial=0)) if warming is None else warming.most_blocks()
        depths = flops_by_depth(model, trace.block_size, longest)
        per_request = figures.prefill_per_request(model, trace.num_prompt_tokens)
        prefill = float(per_request.sum())
    own_trace: BlockTrace | None = None
    if auditing is not None:
        auditing.finish(trace, gathered.rows, capacity_blocks=capacity_blocks)
        own_trace = auditing.own_trace
        if own_trace is not None and capacity_blocks is not None:
            # The pools of several servers are simulated as one of all their blocks.
            size = size.of_servers(auditing.num_servers)
            capacity_blocks = size.capacity_blocks
    policy = deployment.engine_settings.get("eviction_policy")
    if warming is not None:
        # The audit's trace doesn't hold what was in the pool before.
        own_trace = None
        simulated = warming.simulate(
            fields,
            engine=engine,
            policy=policy,
            capacity_blocks=capacity_blocks,
            flops_by_depth=depths,
        )
    else:
        simulated = simulate(
            # Requests of one key share the nodes of `own_trace`: no field is left to tell apart.
            trace if own_trace is None else own_trace,
            fields if own_trace is None else (),
            engine=engine,
            policy=policy,
            capacity_blocks=capacity_blocks,
            flops_by_depth=depths,
        )
    if model is not None:
        saved_per_request = saved_flops(model, simulated.lookups.num_cached_tokens)

    def hits(rates: HitRates, lookups: Lookups) -> Hits:
        return figures.pool_hits(
            rates,
            int(lookups.num_cached_tokens.sum()),
            num_full_blocks=int(full_blocks.sum()),
            block_size=trace.block_size,
            flops_saved=_saved(model, lookups),
            prefill_flops=prefill,
            by_ids=gathered.trace_blocks,
        )

    ids = trace_ids(gathered, trace, simulated.endless_rates, deployment, fields, min_recomputed)
    facts = log_facts_of(
        gathered,
        trace,
        trace_ids=ids,
        num_cached_tokens=simulated.lookups.num_cached_tokens,
    )
    reported_facts = reported_of(
        gathered,
        deployment,
        trace=trace,
        simulated=simulated,
        log=None if auditing is None else auditing.log,
        capacity_blocks=capacity_blocks,
    )
    compared = Compared()
    for replayed, reported in zip(
        simulated.lookups.num_cached_tokens.tolist(), gathered.reported_cached_tokens, strict=True
    ):
        if reported >= 0:
            compared.add(replayed, reported)
    return Report(
        version=prefixaudit.__version__,
        deployment_path=None if deployment.path is None else str(deployment.path),
        log=replace(log_facts(gathered, trace), facts=facts),
        model=model_facts(deployment, kv_bytes, trace),
        pool=PoolSetting(
            engine=engine_name(deployment),
            engine_notes=() if engine is None else engine.notes,
            block_size=trace.block_size,
            block_size_origin=gathered.block_size_origin,
            min_recomputed_tokens=min_recomputed,
            key_fields=fields,
            capacity_blocks=capacity_blocks,
            capacity_bytes=None
            if size.block_bytes is None or capacity_blocks is None
            else capacity_blocks * size.block_bytes,
            capacity_origin=size.origin,
            capacity_range_blocks=size.range_blocks,
            num_distinct_blocks=trace.num_distinct_blocks,
            simulation=simulated.about,
            warm_start=None if warming is None else warming.facts(),
        ),
        num_prompt_tokens=num_prompt_tokens,
        prefill_flops=prefill,
        this_pool=hits(simulated.rates, simulated.lookups),
        endless_pool=hits(simulated.endless_rates, simulated.endless_lookups),
        trace_ids=ids,
        hit_length=figures.hit_lengths(simulated.lookups.num_cached_tokens, trace.block_size),
        curve=figures.curve_points(
            simulated.curve,
            block_size=trace.block_size,
            num_prompt_tokens=num_prompt_tokens,
            prefill_flops=prefill,
            block_bytes=size.block_bytes,
            capacity_blocks=capacity_blocks,
            capacities=simulated.capacities,
            points={
                capacity: (
                    int(lookups.num_cached_tokens.sum()),
                    _saved(model, lookups),
                )
                for capacity, lookups in simulated.points.items()
            },
        ),
        prompt_agreement=gathered.prompt_lengths.agreement(),
        cached_agreement=compared.agreement(),
        generated=generated_facts(gathered, trace, setting),
        unknown_fields=figures.unknown_fields(trace),
        replay_notes=gathered.replay.notes,
        notes=(
            *notes_for(gathered, trace, deployment, setting, fields, simulated),
            *notes_of_facts(facts),
            *(() if warming is None else warming.notes(trace.block_size)),
            *size.notes,
        ),
        rows=request_rows(gathered, trace, simulated.lookups, per_request, saved_per_request),
        incomplete=why_incomplete(gathered, trace.num_requests),
        audit=None
        if auditing is None
        else auditing.report(
            own=None if own_trace is None else (simulated.curve, simulated.lookups),
            endless=simulated.endless_lookups,
            reported=reported_facts,
            saved_flops=None
            if model is None
            else lambda tokens: float(saved_flops(model, tokens).sum()),
            pool=lambda separated: lookups_at(
                separated,
                engine=engine,
                policy=policy,
                capacity_blocks=capacity_blocks,
            ),
            is_cold=warming is None,
        ),
        why=None
        if reasons is None
        else reasons.report(
            trace,
            hits=simulated.lookups.num_cached_tokens,
            endless_hits=simulated.endless_lookups.num_cached_tokens,
            key_fields=fields,
            min_recomputed_tokens=min_recomputed,
            saved_flops=None if model is None else lambda tokens: saved_flops(model, tokens),
            prefill_flops=per_request,
            has_pools_of_servers=own_trace is not None and len(deployment.servers) > 1,
        ),
        reported=reported_facts,
        time=time_facts(
            deployment,
            trace.num_prompt_tokens,
            simulated.lookups.num_cached_tokens,
            is_endless_pool=capacity_blocks is None,
        ),
        forks=fork_facts(gathered.forks, trace.block_size, min_recomputed, size.block_bytes),
    )


def _saved(model: ModelSpec | None, lookups: Lookups) -> float | None:
    """Return the FLOPs that all hits spare, None without a model."""
    if model is None:
        return None
    from prefixaudit.cost.flops import saved_flops

    return float(saved_flops(model, lookups.num_cached_tokens).sum())


def why_incomplete(gathered: Gathered, num_requests: int) -> str | None:
    """Say why the audit has no answer, None where it has one (the rule stands at `analyse`)."""
    num_skipped = len(gathered.skipped)
    if num_requests and num_skipped <= num_requests:
        return None
    [(kind, count)] = Counter(item.kind for item in gathered.skipped).most_common(1)
    reason = next(item.reason for item in gathered.skipped if item.kind == kind)
    if not num_requests:
        said = f"none of the {num_skipped:,} records could be replayed"
    else:
        said = (
            f"{num_skipped:,} of {num_skipped + num_requests:,} records were skipped; the figures "
            "are those of the rest"
        )
    return f"{said}: {reason}" if count == num_skipped else f"{said}; {count:,} {kind}: {reason}"


def empty_report(
    gathered: Gathered,
    deployment: Deployment,
    setting: GeneratedSetting,
) -> Report:
    """Return the report of a log of which nothing could be replayed."""
    nothing = Hits(
        num_cached_tokens=0,
        token_hit_rate=None,
        request_hit_rate=None,
        block_hit_rate=None,
        mean_request_hit_rate=None,
        second_half_token_hit_rate=None,
        prefill_flops_saved=None,
        flops_saved_share=None,
    )
    kv_bytes = kv_bytes_per_token(deployment)
    engine = deployment.engine
    rows = gathered.rows
    facts = log_facts_of(gathered)
    return Report(
        version=prefixaudit.__version__,
        deployment_path=None if deployment.path is None else str(deployment.path),
        log=replace(log_facts(gathered, None), facts=facts),
        model=model_facts(deployment, kv_bytes, None),
        pool=PoolSetting(
            engine=engine_name(deployment),
            engine_notes=() if engine is None else engine.notes,
            block_size=gathered.block_size,
            block_size_origin=gathered.block_size_origin,
            min_recomputed_tokens=1 if engine is None else engine.min_recomputed_tokens,
            key_fields=key_fields(deployment),
            capacity_blocks=None,
            capacity_bytes=None,
            num_distinct_blocks=0,
            simulation="nothing was simulated",
        ),
        num_prompt_tokens=0,
        prefill_flops=None,
        this_pool=nothing,
        endless_pool=nothing,
        trace_ids=None,
        hit_length=None,
        curve=(),
        prompt_agreement=None,
        cached_agreement=None,
        generated=generated_facts(gathered, None, setting),
        unknown_fields=(),
        replay_notes=gathered.replay.notes,
        notes=tuple(notes_of_facts(facts)),
        rows=RequestRows(
            paths=tuple(rows.paths),
            path=np.array(rows.path, dtype=np.int32),
            line=np.array(rows.line, dtype=np.int64),
            position=np.array(rows.position, dtype=np.int64),
            num_cached_tokens_reported=np.empty(0, dtype=np.int64),
            row_request_ids=rows.skipped_request_ids,
            request_ids=(),
            arrival_s=np.empty(0),
            num_prompt_tokens=np.empty(0, dtype=np.int64),
            prefill_flops=None,
            prefill_flops_saved=None,
            lookups=Lookups(
                num_cached_tokens=np.empty(0, dtype=np.int64),
                donor_offsets=np.zeros(1, dtype=np.int64),
                donors=np.empty(0, dtype=np.int32),
                donor_num_tokens=np.empty(0, dtype=np.int64),
            ),
        ),
        incomplete=why_incomplete(gathered, 0),
        reported=reported_of(
            gathered, deployment, trace=None, simulated=None, log=None, capacity_blocks=None
        ),
    )
