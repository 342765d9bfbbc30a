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
from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.core.unknown import Known

Setting: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One server of a deployment, as its files describe it.

    `identity` holds the content fields that are constant on the server. `settings` are the
    engine's options under their long names with `_` (`enable_lora`, `python_hash_seed`,
    `kv_connector` …); a setting that isn't there is UNKNOWN, None is known to be unset.
    """

    name: str
    engine: EngineProfile | None
    identity: Identity
    settings: Mapping[str, Known[Setting]] = field(default_factory=dict)
    model_config: Mapping[str, object] | None = None
    max_model_len: int | None = None
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """One place where blocks are kept (or, for a router, believed to be).

    `tier` says what is in its key, by the engine profile it is taken from. `servers` are those
    that share it.
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
class Sharing:
    """Every stretch of a prompt that was served from one donor's blocks, as columns.

    reader, donor        int32   positions in the trace
    start_token          int64   where the stretch begins in the reader's prompt
    num_tokens           int64
    num_private_tokens   int64   of these, outside of every public prefix
    differing            uint32  bit i: identity field i is known on both sides and differs
    unknown              uint32  bit i: identity field i is unknown on at least one side
    num_wrong_media_tokens int64 tokens whose media differ from the donor's
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
    """A tier's replay of the log: under its own key, and under the complete identity."""

    tier: TierFacts
    trace: BlockTrace
    lookups: Lookups
    safe_lookups: Lookups
    sharing: Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """Everything that a predicate may look at. `replays` is empty without a log."""

    servers: tuple[ServerFacts, ...]
    tiers: tuple[TierFacts, ...]
    replays: tuple[TierReplay, ...] = ()
