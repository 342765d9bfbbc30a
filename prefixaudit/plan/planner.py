"""`plan`: the whole run, from paths and a deployment to a PlanReport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

import prefixaudit
from prefixaudit.analysis import AnalysisOptions
from prefixaudit.analysis.assembly import key_fields, why_incomplete
from prefixaudit.analysis.pipeline import (
    Quiet,
    gather_logs,
    generated_setting,
    replay_options_for,
)
from prefixaudit.analysis.sizing import block_size_of, pool_size
from prefixaudit.core.pool import HitCurve
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.cost.hardware import find_gpu, find_tier
from prefixaudit.deployment import Deployment
from prefixaudit.errors import UsageError
from prefixaudit.plan.basis import Basis, curve_rates
from prefixaudit.plan.contents import largest_prefixes, losers, working_set
from prefixaudit.plan.hardware import Hardware, block_bytes, hardware_of, with_deployed
from prefixaudit.plan.isolation import isolation_rows
from prefixaudit.plan.options import PlanOptions
from prefixaudit.plan.recommend import recommend
from prefixaudit.plan.report import CurvePoint, Option, PlanReport
from prefixaudit.plan.sampling import SampledRate, sample_of, sampled_rates
from prefixaudit.plan.shape import find_cliffs
from prefixaudit.plan.sweeps import Sweeper
from prefixaudit.plan.tiering import break_even, tier_options
from prefixaudit.plan.wording import assumptions, evicted, findings, notes_on
from prefixaudit.pool import find_knee, informative_capacities
from prefixaudit.pool.curves import capacity_for_share

if TYPE_CHECKING:
    from prefixaudit.analysis.auditing import Auditing
    from prefixaudit.analysis.gathered import Gathered
    from prefixaudit.analysis.gathering import Progress

_WINDOWS_S: Final = (300.0, 3600.0)
_NUM_CURVE_POINTS: Final = 40
_ASSUMED_ANSWER_TOKENS: Final = 128


def plan(
    paths: Sequence[str],
    deployment: Deployment,
    options: PlanOptions | None = None,
    *,
    reading: AnalysisOptions | None = None,
    progress: Progress | None = None,
) -> PlanReport:
    """Read and replay a log; return what other sizes, settings and numbers of servers would do.

    Raises UsageError and ConfigurationError for wrong settings, IncompleteError for input that
    can't be read at all.
    """
    options = with_deployed(options or PlanOptions(), deployment)
    reading = replace(reading or AnalysisOptions(), audit=False)
    progress = progress or Quiet()
    if options.gpus and deployment.model is None:
        raise UsageError(
            f"a GPU says nothing without a model: {deployment.model_problem or 'none is given'}",
            hint="give the model's folder with --model",
        )
    for choice in options.gpus:
        find_gpu(choice.name)
    for tier in options.tiers:
        find_tier(tier.name)
    if options.tiers and not options.gpus:
        raise UsageError("tiers need a GPU: a fetch is held against computing", hint="give --gpus")
    # One tokenization, in blocks that all sizes are made of.
    own_size, _ = block_size_of(deployment)
    size = int(np.gcd.reduce(np.array([own_size, *options.block_sizes])))
    auditing = _auditing(deployment, reading) if options.has_isolation else None
    gathered = gather_logs(paths, replace(deployment, block_size=size), reading, progress, auditing)
    progress.stage("planning")
    if gathered.trace is None:
        return _empty(gathered, options)
    return _Planner(gathered, deployment, options, own_size, auditing).report()


def _auditing(deployment: Deployment, reading: AnalysisOptions) -> Auditing | None:
    """Return what knows the declared public prefixes; None where there are none."""
    if not deployment.public_prefixes:
        return None
    from prefixaudit.analysis.auditing import Auditing

    caches_answers = generated_setting(reading, deployment) != "off"
    return Auditing(
        deployment,
        cache_generated=caches_answers,
        replay_options=replay_options_for(deployment, encode_generated=caches_answers),
    )


class _Planner:
    """`own_size` is the deployment's block size; the log may have been read in smaller ones."""

    def __init__(
        self,
        gathered: Gathered,
        deployment: Deployment,
        options: PlanOptions,
        own_size: int,
        auditing: Auditing | None,
    ) -> None:
        assert gathered.trace is not None, "nothing was replayed"
        self.gathered = gathered
        self.deployment = deployment
        self.options = options
        self.auditing = auditing
        trace = gathered.trace
        answers, self.answer_origin = answer_tokens(trace, options.answer_tokens)
        self.fine = Basis.of(
            trace,
            key_fields(deployment),
            engine=deployment.engine,
            policy=deployment.engine_settings.get("eviction_policy"),
            spec=deployment.model,
            options=options,
            num_answer_tokens=answers,
            max_model_len=deployment.max_model_len,
        )
        # A trace of block ids can only be read in its own blocks.
        is_finer = own_size > trace.block_size and own_size % trace.block_size == 0
        self.basis = self.fine.in_blocks_of(own_size) if is_finer else self.fine
        self.hardware: Hardware | None = None
        if options.gpus and deployment.model is not None:
            self.hardware = hardware_of(deployment.model, deployment, options, options.gpus[0])

    def report(self) -> PlanReport:
        basis, options, trace = self.basis, self.options, self.basis.trace
        curve, points, about = self._curve()
        tokens, size = basis.num_prompt_tokens, trace.block_size
        knee = find_knee(curve)
        enough = capacity_for_share(curve, 1.0)
        capacity, origin = self._capacity(knee)
        cliffs = find_cliffs(curve, block_size=size, num_prompt_tokens=tokens)
        if basis.groups:
            # One pass counts blocks of all layers together; here a block holds one group's.
            cliffs, knee, enough = (), None, enough * len(basis.groups)
        sweeper = Sweeper(
            basis=basis,
            fine=self.fine,
            deployment=self.deployment,
            hardware=self.hardware,
            capacity_blocks=capacity,
        )
        rows = self._options(sweeper, knee, enough)
        if basis.groups:
            points = tuple(
                CurvePoint(
                    capacity_blocks=row.capacity_blocks, token_hit_rate=row.token_hit_rate or 0.0
                )
                for row in rows
                if row.sweep == "capacity" and row.capacity_blocks is not None
            )
        endless = float(curve.num_cached_blocks[-1]) * size / max(tokens, 1)
        cached = basis.cached_tokens(capacity)
        steps = None if basis.why_no_time is not None else basis.steps(self.hardware)
        rests_on = assumptions(basis, self.hardware, about=about, answer_origin=self.answer_origin)
        dtype = "auto" if self.hardware is None else self.hardware.kv_cache_dtype
        bytes_a_block = block_bytes(basis.spec, dtype, size)
        return PlanReport(
            version=prefixaudit.__version__,
            files=tuple(file.path for file in self.gathered.files),
            num_requests=trace.num_requests,
            num_skipped=len(self.gathered.skipped),
            span_s=None if np.isnan(trace.arrival_s).any() else float(np.ptp(trace.arrival_s)),
            num_prompt_tokens=tokens,
            num_answer_tokens=int(basis.num_answer_tokens.sum()),
            answer_origin=self.answer_origin,
            load=options.load,
            engine=_engine_name(self.deployment),
            model=_model_name(self.deployment),
            hardware=None if self.hardware is None else self.hardware.title,
            block_size=size,
            capacity_blocks=capacity,
            capacity_bytes=None if bytes_a_block is None else bytes_a_block * capacity,
            capacity_origin=origin,
            simulation=about,
            curve=points,
            knee_blocks=knee,
            enough_blocks=enough,
            endless_hit_rate=endless,
            cliffs=cliffs,
            options=tuple(rows),
            working_sets=tuple(
                found
                for window_s in _WINDOWS_S
                if (found := working_set(trace, basis.namespaces, window_s)) is not None
            ),
            prefixes=largest_prefixes(trace),
            losers=losers(trace, cached, basis.cached_tokens(capacity // 2)),
            break_even=break_even(sweeper, [choice.name for choice in options.tiers]),
            sampled=self._sampled([row.capacity_blocks for row in rows if row.sweep == "capacity"]),
            sample_share=options.sample,
            ttft_target_s=options.ttft_p95_s,
            recommendation=recommend(
                rows,
                points,
                cliffs,
                capacity_blocks=capacity if origin != "the knee of the curve" else None,
                hit_rate=basis.rate(cached),
                endless_hit_rate=endless,
                ttft_target_s=options.ttft_p95_s,
                assumptions=rests_on,
            ),
            findings=(
                *evicted(basis.rate(cached) or 0.0, endless, capacity, enough),
                *findings(cliffs, capacity, rows),
            ),
            assumptions=(*rests_on, *(() if steps is None else steps.assumptions)),
            notes=tuple(notes_on(basis, self.hardware, len(self.deployment.servers))),
            incomplete=why_incomplete(self.gathered, trace.num_requests),
        )

    def _curve(self) -> tuple[HitCurve, tuple[CurvePoint, ...], str]:
        from prefixaudit.analysis.simulating import simulate

        basis = self.basis
        simulated = simulate(
            basis.own,
            (),
            engine=basis.engine,
            policy=basis.policy,
            capacity_blocks=None,
            flops_by_depth=None,
        )
        tokens, size = max(basis.num_prompt_tokens, 1), basis.trace.block_size
        rates = curve_rates(simulated.curve, size, tokens)
        places = informative_capacities(simulated.curve, num_points=_NUM_CURVE_POINTS)
        last = len(rates) - 1
        by_size = {place: float(rates[min(place, last)]) for place in places}
        for capacity, lookups in simulated.points.items():
            by_size[capacity] = int(lookups.num_cached_tokens.sum()) / tokens
        points = tuple(
            CurvePoint(capacity_blocks=capacity, token_hit_rate=rate)
            for capacity, rate in sorted(by_size.items())
        )
        return simulated.curve, points, simulated.about

    def _capacity(self, knee: int | None) -> tuple[int, str]:
        """Return this pool's size in blocks, and where it is from."""
        deployment = self.deployment
        if deployment.capacity is not None or deployment.hardware is not None:
            size = pool_size(deployment, self.basis.trace.block_size)
            if size.capacity_blocks is not None and size.origin != "estimate":
                is_given = size.origin == "deployment"
                return size.capacity_blocks, (
                    "as given" if is_given else "as the engine's log says"
                )
        if self.hardware is not None:
            low, _ = self.hardware.capacity_blocks(self.basis.trace.block_size)
            return low, f"the smaller end of what fits on {self.hardware.title}"
        return max(knee or 1, 1) * max(len(self.basis.groups), 1), "the knee of the curve"

    def _options(self, sweeper: Sweeper, knee: int | None, enough: int) -> list[Option]:
        options, basis = self.options, self.basis
        here = sweeper.capacity_blocks
        capacities = options.capacities_blocks or _default_capacities(here, knee, enough)
        rows = sweeper.capacities(sorted({*capacities, here}))
        if options.block_sizes:
            rows += sweeper.block_sizes(sorted({*options.block_sizes}))
        if options.policies:
            rows += sweeper.policies(options.policies)
        if len(options.gpus) > 1 or options.kv_cache_dtypes:
            rows += sweeper.hardware_choices()
        if options.tiers and basis.why_no_time is None and not basis.groups:
            rows += tier_options(sweeper, options.tiers)
        if options.replicas:
            rows += sweeper.replicas()
        if options.has_isolation:
            public = None
            if self.auditing is not None and self.gathered.trace is not None:
                self.auditing.finish(self.gathered.trace, self.gathered.rows, capacity_blocks=here)
                log = self.auditing.log
                public = None if log is None else log.public_tokens
            rows += isolation_rows(sweeper, basis, public)
        return rows

    def _sampled(self, capacities: Sequence[int | None]) -> tuple[SampledRate, ...]:
        if self.options.sample is None:
            return ()
        basis = self.basis
        sample = sample_of(
            basis.trace,
            basis.namespaces,
            self.options.sample,
            min_recomputed_tokens=basis.min_recomputed_tokens,
        )
        return sampled_rates(
            sample,
            basis.namespaces[sample.positions],
            [capacity for capacity in capacities if capacity is not None],
            min_recomputed_tokens=basis.min_recomputed_tokens,
        )


def answer_tokens(trace: BlockTrace, given: int | None) -> tuple[Int64Array, str]:
    """Return the answers' lengths (int64 [requests], 1 or more) and where they are from."""
    known = trace.num_output_tokens >= 0
    has = np.maximum(trace.num_output_tokens, 1)
    if known.all() and trace.num_requests:
        return has, "lengths as logged"
    missing = int((~known).sum())
    if given is not None:
        length, how = max(given, 1), "as given"
    elif known.any():
        length, how = max(round(float(has[known].mean())), 1), "the mean of the others"
    else:
        length, how = _ASSUMED_ANSWER_TOKENS, "assumed"
    return (
        np.where(known, has, length).astype(np.int64),
        f"{missing:,} of {trace.num_requests:,} requests have no logged length: {length:,} tokens, "
        + how,
    )


def _default_capacities(here: int, knee: int | None, enough: int) -> tuple[int, ...]:
    sizes = {here // 2, here, 2 * here, enough}
    if knee is not None:
        sizes.add(knee)
    return tuple(size for size in sizes if 0 < size <= max(enough, here))


def _engine_name(deployment: Deployment) -> str | None:
    engine = deployment.engine
    if engine is None:
        return None
    return engine.name if engine.facts_version is None else f"{engine.name} {engine.facts_version}"


def _model_name(deployment: Deployment) -> str | None:
    name = deployment.identity.model
    if isinstance(name, str):
        return name
    return None if deployment.model_dir is None else Path(deployment.model_dir).name


def _empty(gathered: Gathered, options: PlanOptions) -> PlanReport:
    """Return the report of a log of which nothing could be replayed."""
    return PlanReport(
        version=prefixaudit.__version__,
        files=tuple(file.path for file in gathered.files),
        num_requests=0,
        num_skipped=len(gathered.skipped),
        span_s=None,
        num_prompt_tokens=0,
        num_answer_tokens=0,
        answer_origin="no request",
        load=options.load,
        engine=None,
        model=None,
        hardware=None,
        block_size=gathered.block_size,
        capacity_blocks=None,
        capacity_bytes=None,
        capacity_origin="nothing was simulated",
        simulation="nothing was simulated",
        curve=(),
        knee_blocks=None,
        enough_blocks=0,
        endless_hit_rate=0.0,
        cliffs=(),
        options=(),
        working_sets=(),
        prefixes=(),
        losers=(),
        break_even=(),
        sampled=(),
        sample_share=options.sample,
        ttft_target_s=options.ttft_p95_s,
        recommendation=None,
        findings=(),
        assumptions=(),
        notes=(),
        incomplete=why_incomplete(gathered, 0) if gathered.skipped else "the log holds no record",
    )
