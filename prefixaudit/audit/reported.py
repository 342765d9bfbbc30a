"""Reported against replayed: what servers said of their caches, held against the log's replay.

A figure of the server counts as known only where it is a number. Null is zero for the versions that
write it so, and unknown elsewhere. Cached tokens are compared where the replayed prompt is as long
as the server's; where most aren't, the replay isn't trusted and the reported figures stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from packaging.version import InvalidVersion, Version

from prefixaudit.audit.engine_figures import engine_figures
from prefixaudit.audit.sharing import fields_of, mask_of, sharing_of
from prefixaudit.core.audit import AuditLog
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.finding import SharedBy
from prefixaudit.core.identity import CONTENT_FIELDS, IDENTITY_FIELDS, ISOLATION_FIELDS
from prefixaudit.core.pool import Lookups
from prefixaudit.core.reading import EngineReading
from prefixaudit.core.reported import (
    NOT_REPORTED,
    REPORTED_NULL,
    BeyondIdentity,
    CachedGap,
    GapKind,
    NullMeaning,
    ReplayTrust,
    ReportedFacts,
    ReportedUsage,
    UsageColumns,
)
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.core.unknown import Known
from prefixaudit.pool import replay_lru

_FIRST: Final = 5
# Of the prompts, so many have to be as long as the server's; the rest may be cut by a length limit.
_MIN_EQUAL_SHARE: Final = 0.9
# A block is there for others once its request has computed it: a prefill rarely takes longer.
_IN_FLIGHT_S: Final = 2.0
# vLLM: null for zero until here (issue 44377, release 0.25 writes 0), and what a preempted request
# finds again counted as hits until here (pull request 25787).
_ZERO_IS_NULL_BEFORE: Final = Version("0.25")
_COUNTS_PREEMPTED_BEFORE: Final = Version("0.11.1")

_ABOUT: Final[Mapping[GapKind, str]] = {
    "unsafe": "cached for requests of another identity alone, as far as this log shows",
    "larger-pool": "evicted in the pool that is modelled here, not in the server's",
    "not-in-log": "stored by what this log doesn't have: earlier requests, or answers",
    "other-replica": "cached, but not on the server where the request went",
    "finer-key": "cached under another identity: the server's key keeps more apart",
    "in-flight": "the donor came less than 2 s before, and may not have been computed yet",
    "evicted": "the server's pool isn't endless, as the one that is modelled here is",
    "unexplained": "no reason found in the log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedHits:
    """The replay that is compared: its trace, and cached tokens (int64 [requests]) at two sizes."""

    trace: BlockTrace
    log: AuditLog | None
    this_pool: Int64Array
    endless_pool: Int64Array
    capacity_blocks: int | None
    min_recomputed_tokens: int


def reported_facts(
    usage: UsageColumns,
    *,
    replayed: ReplayedHits | None,
    readings: Iterable[EngineReading] = (),
    engine: EngineProfile | None = None,
    settings: Mapping[str, object] | None = None,
    num_repeated_ids: int = 0,
) -> ReportedFacts:
    """Compare what servers reported with a replay (None: nothing could be replayed)."""
    version = _vllm_version(engine)
    sums = _usage(usage, version, settings or {})
    trust = None if replayed is None else _trust(usage, replayed)
    gaps: tuple[CachedGap, ...] = ()
    beyond: BeyondIdentity | None = None
    is_trusted = trust is None or trust.is_trusted
    if replayed is not None and is_trusted:
        gaps, beyond = _Comparison(usage, replayed, null_is_zero=sums.null_means == "zero").result()
    rate: float | None = None
    if replayed is not None and is_trusted:
        total = int(replayed.trace.num_prompt_tokens.sum())
        rate = int(replayed.endless_pool.sum()) / total if total else None
    return ReportedFacts(
        usage=sums,
        trust=trust,
        gaps=gaps,
        beyond_identity=beyond,
        engines=engine_figures(readings),
        num_repeated_ids=num_repeated_ids,
        replayed_endless_hit_rate=rate,
        counts_preempted_work=None
        if engine is None or (engine.name == "vllm" and version is None)
        else version is not None and version < _COUNTS_PREEMPTED_BEFORE,
    )


def _vllm_version(engine: EngineProfile | None) -> Version | None:
    """Return vLLM's version where one was given: the newest known says nothing of a server."""
    if engine is None or engine.name != "vllm" or engine.version is None:
        return None
    try:
        return Version(engine.version)
    except InvalidVersion:
        return None


def _usage(
    usage: UsageColumns, version: Version | None, settings: Mapping[str, object]
) -> ReportedUsage:
    prompts, cached = usage.prompt_tokens, usage.cached_tokens
    has_usage = prompts != NOT_REPORTED
    has_number = (cached >= 0) & (prompts >= 0)
    is_null = (cached == REPORTED_NULL) & (prompts >= 0)
    num_null, num_numbers = int(is_null.sum()), int(has_number.sum())
    cached_tokens = int(cached[has_number].sum())
    tokens_of_numbers = int(prompts[has_number].sum())
    tokens = tokens_of_numbers + int(prompts[is_null].sum())
    means, reason = _null(num_null, num_numbers, version, settings)
    if_zero = cached_tokens / tokens if tokens and (num_numbers or means == "zero") else None
    of_reported = cached_tokens / tokens_of_numbers if tokens_of_numbers else None
    return ReportedUsage(
        num_requests=len(prompts),
        num_without_usage=int((~has_usage & (cached == NOT_REPORTED)).sum()),
        num_with_cached=num_numbers,
        num_null_cached=num_null,
        num_without_cached=int((has_usage & (cached == NOT_REPORTED)).sum()),
        prompt_tokens=tokens,
        cached_tokens=cached_tokens,
        completion_tokens=int(usage.completion_tokens[usage.completion_tokens >= 0].sum()),
        null_means=means,
        null_reason=reason,
        hit_rate=None if means == "unknown" else if_zero,
        hit_rate_if_null_is_zero=if_zero,
        hit_rate_of_reported_only=of_reported,
        null_requests=tuple(usage.index[is_null].tolist()),
        missing_requests=tuple(usage.index[cached == NOT_REPORTED].tolist()),
    )


def _null(
    num_null: int, num_numbers: int, version: Version | None, settings: Mapping[str, object]
) -> tuple[NullMeaning, str]:
    """Return what a null for cached tokens means, and why."""
    if not num_null:
        return "none", ""
    flag = settings.get("enable_prompt_tokens_details")
    if version is None:
        return "unknown", "which version wrote it isn't known (--engine vllm@VERSION)"
    if version >= _ZERO_IS_NULL_BEFORE:
        return "unknown", f"vLLM {version} writes 0 where nothing was hit: null is not counted"
    if num_numbers:
        return "zero", f"vLLM {version} writes null where nothing was hit"
    if flag is True:
        return "zero", f"vLLM {version} with --enable-prompt-tokens-details writes null for zero"
    return "unknown", "--enable-prompt-tokens-details may be off: no request has a number"


def _trust(usage: UsageColumns, replayed: ReplayedHits) -> ReplayTrust | None:
    can_compare = (usage.position >= 0) & (usage.prompt_tokens >= 0) & ~usage.is_approximate
    rows = np.flatnonzero(can_compare)
    if not len(rows):
        return None
    lengths = replayed.trace.num_prompt_tokens[usage.position[rows]]
    differences = lengths - usage.prompt_tokens[rows]
    num_equal = int((differences == 0).sum())
    is_trusted = num_equal >= _MIN_EQUAL_SHARE * len(rows)
    unequal = differences[differences != 0]
    constant = int(unequal[0]) if len(unequal) and (unequal == unequal[0]).all() else None
    reason = ""
    if not is_trusted:
        how = "differ in length"
        if constant is not None:
            more = "longer" if constant > 0 else "shorter"
            how = f"are {abs(constant):,} token{'s' * (abs(constant) != 1)} {more}"
        reason = (
            f"{len(rows) - num_equal:,} of {len(rows):,} replayed prompts {how} than what the "
            "server counted: the template, tokenizer or log isn't the server's"
        )
        if constant is None:
            reason = reason.replace("differ in length than", "differ in length from")
    return ReplayTrust(
        num_compared=len(rows),
        num_equal=num_equal,
        difference=constant,
        is_trusted=is_trusted,
        reason=reason,
    )


class _Comparison:
    """Cached tokens of every request that has both figures."""

    def __init__(self, usage: UsageColumns, replayed: ReplayedHits, *, null_is_zero: bool) -> None:
        trace = replayed.trace
        self._replayed = replayed
        self._trace = trace
        self._index = np.full(trace.num_requests, -1, dtype=np.int64)
        reported = np.full(trace.num_requests, NOT_REPORTED, dtype=np.int64)
        rows = usage.position >= 0
        places = usage.position[rows]
        cached = usage.cached_tokens[rows]
        if null_is_zero:
            cached = np.where(cached == REPORTED_NULL, 0, cached)
        prompts = usage.prompt_tokens[rows]
        fits = (prompts < 0) | (prompts == trace.num_prompt_tokens[places])
        fits &= ~usage.is_approximate[rows]
        self._index[places] = usage.index[rows]
        self._server = np.full(trace.num_requests, -1, dtype=np.int32)
        self._server[places] = usage.server[rows]
        reported[places] = np.where(fits, cached, NOT_REPORTED)
        self._reported = reported
        self._is_compared = reported >= 0

    def result(self) -> tuple[tuple[CachedGap, ...], BeyondIdentity | None]:
        more = self._is_compared & (self._reported > self._replayed.this_pool)
        less = self._is_compared & (self._reported < self._replayed.this_pool)
        if not (more.any() or less.any()):
            return (), None
        safe = self._hits(self._complete())
        gaps: list[CachedGap] = []
        beyond: BeyondIdentity | None = None
        differences = self._reported - self._replayed.this_pool
        if more.any():
            unsafe, beyond = self._beyond(more, safe)
            larger = more & ~unsafe & (self._reported <= self._replayed.endless_pool)
            parts: dict[GapKind, NDArray[np.bool_]] = {
                "unsafe": unsafe,
                "larger-pool": larger,
                "not-in-log": more & ~unsafe & ~larger,
            }
            gaps += self._gaps(parts, differences, is_more=True)
        if less.any():
            gaps += self._gaps(dict(self._less(less, safe)), -differences, is_more=False)
        return tuple(gaps), beyond

    def _complete(self) -> NDArray[np.int32]:
        return self._trace.namespaces(tuple(name for name in IDENTITY_FIELDS if name != "user"))

    def _hits(self, namespaces: NDArray[np.int32]) -> Int64Array:
        _, lookups = replay_lru(
            self._trace,
            namespaces,
            capacity_blocks=None,
            min_recomputed_tokens=self._replayed.min_recomputed_tokens,
            flops_by_depth=None,
            order=self._trace.replay_order(),
            with_donors=False,
        )
        return lookups.num_cached_tokens

    def _gaps(
        self,
        parts: Mapping[GapKind, NDArray[np.bool_]],
        differences: Int64Array,
        *,
        is_more: bool,
    ) -> Iterator[CachedGap]:
        for kind, rows in parts.items():
            if rows.any():
                yield CachedGap(
                    kind=kind,
                    is_more=is_more,
                    about=_ABOUT[kind],
                    num_requests=int(rows.sum()),
                    num_tokens=int(differences[rows].sum()),
                    requests=tuple(self._index[rows][:_FIRST].tolist()),
                )

    def _less(
        self, less: NDArray[np.bool_], safe: Int64Array
    ) -> Iterator[tuple[GapKind, NDArray[np.bool_]]]:
        """Yield each reason with the requests that it is the first to explain."""
        left = less.copy()

        def take(kind: GapKind, rows: NDArray[np.bool_]) -> tuple[GapKind, NDArray[np.bool_]]:
            nonlocal left
            taken = left & rows
            left = left & ~rows
            return kind, taken

        if len(np.unique(self._server[self._server >= 0])) > 1:
            yield take("other-replica", self._hits(self._server) <= self._reported)
        yield take("finer-key", safe <= self._reported)
        yield take("in-flight", self._in_flight())
        if self._replayed.capacity_blocks is None:
            yield take("evicted", left.copy())
        yield "unexplained", left

    def _in_flight(self) -> NDArray[np.bool_]:
        """Say of whom the first token that wasn't reused was stored moments before."""
        arrival = self._trace.arrival_s
        lookups = self._donated
        ends = np.cumsum(lookups.donor_num_tokens)
        firsts = lookups.donor_offsets[:-1]
        before = np.concatenate([[0], ends])[firsts]
        wanted = before + np.maximum(self._reported, 0)
        rows = np.searchsorted(ends, wanted, side="right")
        has_donor = rows < lookups.donor_offsets[1:]
        result = np.zeros(self._trace.num_requests, dtype=np.bool_)
        readers = np.flatnonzero(has_donor)
        donors = lookups.donors[rows[readers]]
        with np.errstate(invalid="ignore"):
            result[readers] = arrival[readers] - arrival[donors] < _IN_FLIGHT_S
        return result

    @cached_property
    def _donated(self) -> Lookups:
        """Who stored what each request finds, whatever its identity."""
        _, lookups = replay_lru(
            self._trace,
            self._trace.namespaces(()),
            capacity_blocks=None,
            min_recomputed_tokens=self._replayed.min_recomputed_tokens,
            flops_by_depth=None,
            order=self._trace.replay_order(),
            with_donors=True,
        )
        return lookups

    def _beyond(
        self, more: NDArray[np.bool_], safe: Int64Array
    ) -> tuple[NDArray[np.bool_], BeyondIdentity | None]:
        """Return who was served at least a block that others alone had stored."""
        nobody = np.zeros(len(more), dtype=np.bool_)
        log, block_size = self._replayed.log, self._trace.block_size
        if log is None or not (more & (self._reported >= safe + block_size)).any():
            return nobody, None
        lookups = self._donated
        num_rows = len(lookups.donors)
        sharing = sharing_of(
            self._trace,
            lookups,
            public_tokens=log.public_tokens,
            constant_fields=frozenset(),
            is_same_process=np.zeros(num_rows, dtype=np.bool_),
            key_fields=frozenset(),
            media_trace=None,
        )
        content = np.uint32(mask_of(CONTENT_FIELDS))
        isolation = np.uint32(mask_of(ISOLATION_FIELDS))
        reader = sharing.reader.astype(np.int64)
        end = sharing.start_token + sharing.num_tokens
        private_start = end - sharing.num_private_tokens
        is_content = (sharing.differing & content) != 0
        is_isolation = (sharing.differing & isolation) != 0
        start = np.where(is_content, sharing.start_token, private_start)
        overlap = np.minimum(end, self._reported[reader]) - np.maximum(start, safe[reader])
        overlap = np.where(is_content | is_isolation, np.maximum(overlap, 0), 0)
        tokens = np.zeros(len(more), dtype=np.int64)
        np.add.at(tokens, reader, overlap)
        unsafe = more & (tokens >= block_size)
        rows = np.flatnonzero(unsafe[reader] & (overlap > 0))
        if not len(rows):
            return nobody, None
        mask = int(np.bitwise_or.reduce(sharing.differing[rows]))
        return unsafe, BeyondIdentity(
            requests=tuple(self._index[unsafe].tolist()),
            num_tokens=int(tokens[unsafe].sum()),
            fields=fields_of(mask),
            pairs=tuple(
                SharedBy(
                    reader=self._trace.request_ids[reader[row]],
                    donor=self._trace.request_ids[sharing.donor[row]],
                    num_tokens=int(overlap[row]),
                    reader_source=log.source(int(reader[row])),
                    donor_source=log.source(int(sharing.donor[row])),
                )
                for row in rows[:_FIRST].tolist()
            ),
        )


def reported_numbers(values: Iterable[Known[int]]) -> Int64Array:
    """Return what servers reported as a column of UsageColumns."""
    codes: list[int] = []
    for value in values:
        if value is None:
            codes.append(REPORTED_NULL)
        else:
            codes.append(value if isinstance(value, int) else NOT_REPORTED)
    return np.array(codes, dtype=np.int64)


def repeated_ids(request_ids: Sequence[str]) -> int:
    """Return how many requests carry an id that an earlier one has."""
    return len(request_ids) - len(set(request_ids))
