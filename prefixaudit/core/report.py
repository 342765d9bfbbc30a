"""What a renderer gets: the whole result of a run, as values.

A figure that isn't known is None here, never 0; the reason stands beside it. Rates and shares lie
in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.finding import Finding
from prefixaudit.core.log_fact import LogFact
from prefixaudit.core.pool import Lookups, WarmStart
from prefixaudit.core.reported import ReportedFacts
from prefixaudit.core.request import Skipped
from prefixaudit.core.trace import Float64Array, Int64Array
from prefixaudit.core.why import WhyFacts

if TYPE_CHECKING:
    from prefixaudit.core.gate import GateReport
    from prefixaudit.core.times import ForkFacts, TimeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """One file of the log and the format it was read as."""

    path: str
    format: str
    num_bytes: int | None
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What was read. `num_requests` were replayed; with `num_skipped` they are all that was read.

    `num_records` counts the physical records; one of them can hold several prompts. `num_tenants`
    is None where no request's tenant is known.
    """

    files: tuple[ReadFile, ...]
    num_records: int
    num_requests: int
    num_skipped: int
    skipped: tuple[Skipped, ...]
    num_tenants: int | None
    first_arrival_s: float | None
    last_arrival_s: float | None
    num_approximate: int
    facts: tuple[LogFact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of the model; `problem` says why FLOPs and bytes can't be given."""

    name: str | None
    folder: str | None
    kv_bytes_per_token: int | None
    problem: str | None


BlockSizeOrigin: TypeAlias = Literal[
    "deployment", "engine", "engine-log", "model", "trace", "assumed"
]
CapacityOrigin: TypeAlias = Literal["deployment", "engine-log", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSetting:
    """The pool that was modelled; `capacity_blocks` None is an endless one.

    `capacity_origin` says who gave its size, `capacity_range_blocks` both ends of an estimate.
    `key_fields` are the identity fields that separate blocks besides tokens and media;
    `simulation` says which pool was simulated, and how.
    """

    engine: str | None
    engine_notes: tuple[str, ...]
    block_size: int
    block_size_origin: BlockSizeOrigin
    min_recomputed_tokens: int
    key_fields: tuple[str, ...]
    capacity_blocks: int | None
    capacity_bytes: int | None
    num_distinct_blocks: int
    simulation: str
    capacity_origin: CapacityOrigin | None = None
    capacity_range_blocks: tuple[int, int] | None = None
    warm_start: WarmStart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Figures of one pool size. Each rate names its own definition:

    token_hit_rate            cached tokens / prompt tokens, the whole log from a cold pool (or what
                              the pool held before it, `PoolSetting.warm_start`)
    request_hit_rate          requests with one cached block or more / requests; in a trace of block
                              ids: with one matched id or more, a partial last one included
    block_hit_rate            cached full blocks / full blocks of the prompts, last-token rule kept
    mean_request_hit_rate     mean over requests of cached tokens / prompt tokens
    second_half_token_hit_rate  token hit rate of the requests in the second half of the log, the
                              pool filled by the first
    prefill_flops_saved       FLOPs that the cached tokens spare; None without a model
    """

    num_cached_tokens: int
    token_hit_rate: float | None
    request_hit_rate: float | None
    block_hit_rate: float | None
    mean_request_hit_rate: float | None
    second_half_token_hit_rate: float | None
    prefill_flops_saved: float | None
    flops_saved_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceIds:
    """For traces of hash ids: ids of each prompt matched from its front in an endless pool, the
    partial last id included, the last-token rule left out (how the traces' publishers count).

    `full_block_request_hit_rate` counts the requests with a cached full block instead, under the
    last-token rule. `finer_block_size` and the two rates give the range of the token hit rate for
    an engine whose block is smaller than the trace's: where inside its block two prompts part isn't
    known.
    """

    num_ids: int
    num_matched_ids: int
    id_hit_rate: float | None
    full_block_request_hit_rate: float | None
    finer_block_size: int | None = None
    min_token_hit_rate: float | None = None
    max_token_hit_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HitLength:
    """Cached tokens a request, all replayed requests, percentiles by nearest rank.

    `histogram` are (first length, number of requests): the bin ends where the next one begins.
    """

    p50: int
    p90: int
    p99: int
    max: int
    histogram: tuple[tuple[int, int], ...]


CurveMark: TypeAlias = Literal["this-pool", "knee", "endless"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Hits of one pool size; `marks` say whether it is one to point out."""

    capacity_blocks: int
    capacity_bytes: int | None
    num_cached_tokens: int
    token_hit_rate: float | None
    flops_saved_share: float | None
    marks: tuple[CurveMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Replayed figures against what the server reported, over the requests that have both."""

    num_compared: int
    num_equal: int
    num_more: int
    num_less: int
    reported_tokens: int
    replayed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFacts:
    """Whether answers enter the pool, and for how many requests the log doesn't have them."""

    setting: Literal["auto", "on", "off"]
    num_with_answer: int
    num_without_answer: int
    num_cached_tokens_generated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownField:
    """An identity field that isn't known for `num_requests` of the replayed requests."""

    field: str
    kind: Literal["content", "isolation"]
    about: str
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRows:
    """One row for every request or skipped record, in log order, as columns of length [rows].

    path, line    int32, int64  place in `paths`, line from 1
    position      int64         place in the trace, or -1 - place in LogFacts.skipped
    num_cached_tokens_reported  int64, -1 where not reported
    The columns of length [requests] are in the trace's order.
    """

    paths: tuple[str, ...]
    path: NDArray[np.int32]
    line: Int64Array
    position: Int64Array
    num_cached_tokens_reported: Int64Array
    row_request_ids: Mapping[int, str]
    request_ids: tuple[str, ...]
    arrival_s: Float64Array
    num_prompt_tokens: Int64Array
    prefill_flops: Float64Array | None
    prefill_flops_saved: Float64Array | None
    lookups: Lookups


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldGap:
    """What a key lets through for want of one field: readers, tokens, and (reader, donor) pairs.

    `field` is an identity field or `media`.
    """

    field: str
    num_requests: int
    num_tokens: int
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """Hits of one tier under its own key, and how many of them are safe.

    num_safe_cached_tokens  hits under the key refined by the complete identity
    num_unsafe_requests, num_unsafe_tokens  served from a donor of another identity: all tokens
                            where the content differs, those outside of public prefixes where only
                            who may observe the reuse does
    gaps                    fields that the key lacks, by what each lets through
    smallest_closing_fields the fewest fields whose addition to the key lets nothing through
    """

    name: str
    kind: str
    engine: str
    block_size: int
    capacity_blocks: int | None
    servers: tuple[str, ...]
    num_cached_tokens: int
    token_hit_rate: float | None
    num_safe_cached_tokens: int
    safe_token_hit_rate: float | None
    num_unsafe_requests: int
    num_unsafe_tokens: int
    gaps: tuple[FieldGap, ...]
    smallest_closing_fields: tuple[str, ...]


IsolationPolicy: TypeAlias = Literal[
    "shared", "public-prefix-shared", "trust-domain", "tenant", "user"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationRow:
    """What the own pool would hit if reuse were kept within `policy`; content keeps apart always.

    `num_requests_unknown` have no such field: they are one group.
    """

    policy: IsolationPolicy
    num_groups: int
    num_requests_unknown: int
    num_cached_tokens: int
    token_hit_rate: float | None
    prefill_flops_saved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixProposal:
    """A beginning that several tenants share, for a person to declare public by its `hash`."""

    hash: str
    num_tokens: int
    num_tenants: int
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRows:
    """One row a request of the trace, int64 each, for one tier: what it hit, and what of it safely.

    num_unsafe_tokens  got from donors of another identity (see TierFigures)
    """

    name: str
    num_cached_tokens: Int64Array
    num_safe_cached_tokens: Int64Array
    num_unsafe_tokens: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What the audit found. `findings` come most severe first; `safe_*` are the own pool's.

    `rows` are in the order of `tiers`, the own pool first. `notes` say what could not be audited
    and why.
    """

    num_rules: int
    findings: tuple[Finding, ...]
    tiers: tuple[TierFigures, ...]
    safe_this_pool_tokens: int | None
    safe_endless_pool_tokens: int | None
    num_cross_tenant_private_tokens: int
    isolation: tuple[IsolationRow, ...]
    proposed_public_prefixes: tuple[PrefixProposal, ...]
    num_public_tokens: int
    rows: tuple[TierRows, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of `analyse`.

    `reported` is what servers said of their caches; None where the log has nothing of it. `time` is
    None without a GPU or a model, `forks` where no request asks for several samples.
    `notes` are sentences about how figures were made and what they can't say; `incomplete` says why
    the audit has no answer (exit code 3), None where it has one.
    """

    version: str
    deployment_path: str | None
    log: LogFacts
    model: ModelFacts
    pool: PoolSetting
    num_prompt_tokens: int
    prefill_flops: float | None
    this_pool: Hits
    endless_pool: Hits
    trace_ids: TraceIds | None
    hit_length: HitLength | None
    curve: tuple[CurvePoint, ...]
    prompt_agreement: Agreement | None
    cached_agreement: Agreement | None
    generated: GeneratedFacts
    unknown_fields: tuple[UnknownField, ...]
    replay_notes: tuple[str, ...]
    notes: tuple[str, ...]
    rows: RequestRows
    incomplete: str | None = None
    audit: AuditReport | None = None
    why: WhyFacts | None = None
    reported: ReportedFacts | None = None
    time: TimeFacts | None = None
    forks: ForkFacts | None = None

    @property
    def exit_code(self) -> int:
        """Return 3 where the audit is incomplete, else 0."""
        return 3 if self.incomplete is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How to print: columns, colour, whether every skipped record and open question is listed."""

    width: int = 100
    colour: bool = False
    show_skipped: bool = False
    show_inconclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """One output format: a Report in, text out; `render_gate` where it can show a gate too."""

    title: str
    render: Callable[[Report, RenderOptions], str]
    render_gate: Callable[[GateReport, RenderOptions], str] | None = None
