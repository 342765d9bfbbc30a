"""Replays a log with one cause repaired: a figure, not advice.

The log is read again; every request goes through the repair, the template and the tokenizer, and
into the same pool under the same key. Requests that can't be replayed then are left as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prefixaudit.analysis.reasons import Reasons
from prefixaudit.analysis.simulating import simulate
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.report import Report
from prefixaudit.core.request import Request, Skipped
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.core.why import UnstableCause, WhatIf
from prefixaudit.deployment import Deployment
from prefixaudit.prompts.replayer import finished
from prefixaudit.why.grouping import advice_with
from prefixaudit.why.repairs import Repair, plan_repair

if TYPE_CHECKING:
    from prefixaudit.analysis.options import AnalysisOptions

_MOST_CAUSES: Final = 8


def with_what_ifs(
    report: Report,
    trace: BlockTrace,
    reasons: Reasons,
    paths: Sequence[str],
    deployment: Deployment,
    options: AnalysisOptions,
) -> Report:
    """Return the report with what a repair would bring, for the dearest causes that have one.

    The pool is that of `simulate` under the report's key fields, before and after.
    """
    why = report.why
    if why is None or not why.causes:
        return report
    if "-" in paths:
        note = "standard input can't be read twice: repairs were not replayed"
        return replace(report, why=replace(why, notes=(*why.notes, note)))
    key_fields, capacity_blocks = report.pool.key_fields, report.pool.capacity_blocks
    again = _Again(paths, deployment, options, reasons, trace, key_fields, capacity_blocks)
    before = again.hits(trace)
    causes: list[UnstableCause] = []
    num_replayed = 0
    for cause in why.causes:
        planned = None
        if num_replayed < _MOST_CAUSES:
            planned = plan_repair(
                cause,
                reasons.explainer.explained,
                reasons.replayer,
                cache_generated=reasons.cache_generated,
            )
        if planned is None:
            causes.append(cause)
            continue
        num_replayed += 1
        repaired = again.trace(planned.repair)
        hits = again.hits(repaired)
        total = int(repaired.num_prompt_tokens.sum())
        what_if = WhatIf(
            about=planned.about,
            num_prompt_tokens=total,
            num_cached_tokens=int(hits.sum()),
            token_hit_rate=int(hits.sum()) / total if total else None,
            prefill_flops_saved=_saved_flops(deployment, hits),
            hits=hits,
        )
        causes.append(
            replace(
                cause,
                what_if=what_if,
                advice=advice_with(cause, what_if, int(before.sum())),
            )
        )
    return replace(report, why=replace(why, causes=tuple(causes)))


def _saved_flops(deployment: Deployment, hits: Int64Array) -> float | None:
    if deployment.model is None:
        return None
    from prefixaudit.cost.flops import saved_flops

    return float(saved_flops(deployment.model, hits).sum())


class _Again:
    """Reads the log again, once for every repair."""

    def __init__(
        self,
        paths: Sequence[str],
        deployment: Deployment,
        options: AnalysisOptions,
        reasons: Reasons,
        trace: BlockTrace,
        key_fields: tuple[str, ...],
        capacity_blocks: int | None,
    ) -> None:
        self._paths = paths
        self._deployment = deployment
        self._options = options
        self._reasons = reasons
        self._original = trace
        self._key_fields = key_fields
        self._capacity_blocks = capacity_blocks

    def trace(self, repair: Repair) -> BlockTrace:
        """Return the trace of the repaired log: the requests of the first one, in their order."""
        from prefixaudit.logs import read_logs

        builder = TraceBuilder(
            block_size=self._original.block_size, cache_generated=self._reasons.cache_generated
        )
        taken = set(self._original.index.tolist())
        position = 0
        for index, item in enumerate(
            read_logs(self._paths, self._options.read_options(self._deployment))
        ):
            if not isinstance(item, Request) or index not in taken:
                continue
            builder.add(self._replayed(self._deployment.complete(item), position, repair), index)
            position += 1
        built = builder.finish()
        # What the template was shown as the time isn't when the request came.
        return replace(built, arrival_s=self._original.arrival_s)

    def hits(self, trace: BlockTrace) -> Int64Array:
        """Return each request's cached tokens (int64 [requests]) in the deployment's pool."""
        return simulate(
            trace,
            self._key_fields,
            engine=self._deployment.engine,
            policy=self._deployment.engine_settings.get("eviction_policy"),
            capacity_blocks=self._capacity_blocks,
            flops_by_depth=None,
        ).lookups.num_cached_tokens

    def _replayed(self, request: Request, position: int, repair: Repair) -> Prompt:
        replayer = self._reasons.replayer
        prompt, shown_s = repair(request, position)
        found = finished(request, replayer.replay_parts(prompt, shown_s, request.generated))
        if isinstance(found, Skipped):
            parts = replayer.replay_parts(request.prompt, request.arrival_s, request.generated)
            found = finished(request, parts)
        assert isinstance(found, Prompt), "the trace has taken this request before"
        return found
