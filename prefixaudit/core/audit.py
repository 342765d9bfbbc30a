"""What a rule looks at: the deployment as facts, and every tier's lookups with their donors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.engine import EngineProfile, Tier
from prefixaudit.core.finding import Location
from prefixaudit.core.identity import Identity
from prefixaudit.core.pool import HitCurve, Lookups
from prefixaudit.core.reported import ReportedFacts
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.core.unknown import UNKNOWN, Known

Setting: TypeAlias = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFacts:
    """A LoRA adapter that a server can serve: requests name it as if it were a model."""

    name: str
    path: Known[str] = UNKNOWN
    revision: Known[str] = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One server of a deployment, as its files describe it.

    `identity` holds the content fields that are constant on the server. `settings` are the
    engine's options under their long names with `_` (`enable_lora`, `python_hash_seed`,
    `kv_connector` …); a setting that isn't there is UNKNOWN, None is known to be unset.
    `matches` says which requests of a log it got: (source, value) pairs, the source as a tenant's
    ("field:node", "header:x-served-by"), any of which decides.
    """

    name: str
    engine: EngineProfile | None
    identity: Identity
    settings: Mapping[str, Known[Setting]] = field(default_factory=dict)
    model_config: Mapping[str, object] | None = None
    max_model_len: int | None = None
    matches: tuple[tuple[str, str], ...] = ()
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """One place where blocks are kept (or, for a router, believed to be).

    `tier` says what is in its key, by the engine profile it is taken from. `servers` are those
    that share it; each has a local pool of its own, whose capacity is `capacity_blocks`.
    """

    name: str
    profile: EngineProfile
    tier: Tier
    block_size: int
    servers: tuple[str, ...]
    capacity_blocks: int | None = None
    settings: Mapping[str, Known[Setting]] = field(default_factory=dict)
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """A log as the audit needs it: the same requests, in the same order, in every trace.

    traces         one for each block size that a tier has, media in the chain
    media_traces   the same with media as some tier's key holds them, by the name of that form (see
                   audit/media.py); empty where no request of the log has media
    server         int32 [requests]  position in the deployment's servers, -1 where unknown
    epoch          int32 [requests]  number of times that the request's server had emptied its
                   pool before
    store_epoch    int32 [requests]  the same of external stores
    public_tokens  int64 [requests]  length of the prompt's beginning that everybody may know
    changed_fields identity fields that events changed while a server ran: its process's life
                   doesn't hold them apart
    path, line     int32, int64 [requests]  where the request stands: `paths[path]`, line from 1
    """

    traces: tuple[BlockTrace, ...]
    media_traces: Mapping[str, tuple[BlockTrace, ...]]
    server: Int32Array
    epoch: Int32Array
    store_epoch: Int32Array
    public_tokens: Int64Array
    changed_fields: frozenset[str]
    paths: tuple[str, ...]
    path: Int32Array
    line: Int64Array

    def trace(self, block_size: int, media_form: str = "full") -> BlockTrace | None:
        """Return the trace in blocks of a size; None where the log can't be read in them."""
        traces = self.media_traces.get(media_form, self.traces)
        return next((trace for trace in traces if trace.block_size == block_size), None)

    def source(self, position: int) -> str:
        """Return `path:line` of the request at a position of the traces, "" where unknown."""
        if not len(self.path):
            return ""
        return f"{self.paths[self.path[position]]}:{self.line[position]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Every stretch of a prompt that was served from one donor's blocks, as columns.

    reader, donor        int32   positions in the trace
    start_token          int64   where the stretch begins in the reader's prompt
    num_tokens           int64
    num_private_tokens   int64   of these, outside of every public prefix
    differing            uint32  bit i: identity field i is known on both sides and differs
    unknown              uint32  bit i: identity field i could differ, and isn't known on both sides
    num_wrong_media_tokens int64 tokens whose media differ from the donor's

    Of an adapter the field that decides has the bit: the name, else the revision, else the path.
    Who may observe the reuse is the trust domain where it is known, else the tenant. A bit of
    `differing` says nothing of what the key holds: two equal keys of different identities are the
    fault that is looked for.
    """

    reader: Int32Array
    donor: Int32Array
    start_token: Int64Array
    num_tokens: Int64Array
    num_private_tokens: Int64Array
    differing: NDArray[np.uint32]
    unknown: NDArray[np.uint32]
    num_wrong_media_tokens: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReplay:
    """A tier's replay of the log: under its own key, and under the complete identity.

    `trace` has all requests of the log; those that the tier never sees hit nothing. The curve sums
    the pools of several servers, each of the same capacity.
    """

    tier: TierFacts
    log: AuditLog
    trace: BlockTrace
    lookups: Lookups
    safe_lookups: Lookups
    sharing: Sharing
    curve: HitCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFigures:
    """Figures of the log that rules of scope `report` compare.

    `num_short_prompts` have no full block; `num_bypassing` look nothing up (prompt_logprobs).
    `working_set_blocks` is the smallest pool with all hits that an endless one has,
    `capacity_blocks` the pool's, None where it is endless or not known.
    """

    num_requests: int
    num_prompt_tokens: int
    block_size: int
    num_short_prompts: int
    num_bypassing: int
    capacity_blocks: int | None
    working_set_blocks: int
    num_cached_tokens: int
    num_endless_cached_tokens: int
    num_safe_cached_tokens: int
    longest_prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """Everything that a predicate may look at. Without a log there are no replays and figures.

    `has_tenants`: several tenants are served, as far as the deployment says (a tenant source, trust
    domains). `reported` are the servers' own figures beside the replay's.
    """

    servers: tuple[ServerFacts, ...]
    tiers: tuple[TierFacts, ...]
    adapters: tuple[AdapterFacts, ...] = ()
    replays: tuple[TierReplay, ...] = ()
    figures: AuditFigures | None = None
    has_tenants: Known[bool] = UNKNOWN
    reported: ReportedFacts | None = None
