"""The audit beside the figures: what is gathered on the way, and what comes of it.

auditing = Auditing(deployment, …)
auditing.start(block_size); auditing.add(prompt, index)     while the log is read
auditing.finish(trace, rows, capacity_blocks=…)             the log as the audit needs it
simulate(auditing.own_trace, (), …)                         under the key that the engine has
auditing.report(…)                                          findings and the tiers' figures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from prefixaudit.audit.facts import adapters_of, has_tenants, servers_of, tiers_of
from prefixaudit.audit.false_hits import key_gaps, unsafe_masks, unsafe_tokens
from prefixaudit.audit.findings import figures_of, findings_of
from prefixaudit.audit.gathering import AuditGatherer
from prefixaudit.audit.isolation import isolation_table
from prefixaudit.audit.public import propose_prefixes
from prefixaudit.audit.rules import load_rules
from prefixaudit.audit.tiers import (
    PoolReplay,
    TierKeys,
    can_replay,
    is_complete,
    replay_tier,
    safe_hits,
    separate_by_key,
    sharing_with,
    tier_keys,
    trace_for,
)
from prefixaudit.core.audit import AuditLog, AuditSubject, TierFacts, TierReplay
from prefixaudit.core.identity import ISOLATION_FIELDS
from prefixaudit.core.pool import HitCurve, Lookups
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.report import AuditReport, IsolationRow, TierFigures, TierRows
from prefixaudit.core.reported import ReportedFacts
from prefixaudit.core.request import ChatMessages, RawText, Request, Skipped, Source, TokenArray
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.deployment import Deployment
from prefixaudit.errors import ConfigurationError
from prefixaudit.pool.separate import numbered

if TYPE_CHECKING:
    from prefixaudit.analysis.gathered import Rows
    from prefixaudit.deployment.public import PublicPrefix
    from prefixaudit.prompts import ReplayOptions

_MIN_TENANTS_OF_A_PROPOSAL: Final = 3
_OWNER_FIELDS: Final = ("tenant", "trust_domain")
assert set(_OWNER_FIELDS) <= set(ISOLATION_FIELDS)


class Auditing:
    """The audit of one run."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        cache_generated: bool,
        replay_options: ReplayOptions,
        rule_folders: Sequence[Path] = (),
    ) -> None:
        """Raises ConfigurationError for rules that can't be read."""
        self._deployment = deployment
        self._cache_generated = cache_generated
        self._replay_options = replay_options
        self._rules = load_rules(rule_folders)
        self._gatherer: AuditGatherer | None = None
        self._log: AuditLog | None = None
        self._own_keys: TierKeys | None = None
        self._servers = servers_of(deployment)
        self._tiers: tuple[TierFacts, ...] = ()

    @property
    def num_servers(self) -> int:
        return len(self._servers)

    def start(self, block_size: int) -> None:
        """Get ready for prompts; `block_size` is that of the trace that is built anyway."""
        deployment = self._deployment
        tiers = tiers_of(deployment, block_size=block_size, capacity_blocks=None)
        self._gatherer = AuditGatherer(
            deployment,
            tiers,
            block_size=block_size,
            cache_generated=self._cache_generated,
            public_ids=_public_ids(deployment, self._replay_options),
            public_hashes=[p.hash for p in deployment.public_prefixes if p.hash is not None],
        )

    def add(self, prompt: Prompt, index: int) -> None:
        """Note a prompt that the trace has taken."""
        assert self._gatherer is not None, "start comes first"
        self._gatherer.add(prompt, index)

    def add_batch(self, batch: TraceBatch) -> None:
        """Note requests that the trace has taken as columns."""
        assert self._gatherer is not None, "start comes first"
        self._gatherer.add_batch(batch)

    def finish(self, trace: BlockTrace, rows: Rows, *, capacity_blocks: int | None) -> None:
        """Take the whole log. `capacity_blocks` is the own pool's size, None: endless."""
        if self._gatherer is None:
            self.start(trace.block_size)
        assert self._gatherer is not None
        position = np.array(rows.position, dtype=np.int64)
        is_request = position >= 0
        path = np.zeros(trace.num_requests, dtype=np.int32)
        line = np.zeros(trace.num_requests, dtype=np.int64)
        path[position[is_request]] = np.array(rows.path, dtype=np.int32)[is_request]
        line[position[is_request]] = np.array(rows.line, dtype=np.int64)[is_request]
        self._log = self._gatherer.finish(trace, paths=tuple(rows.paths), path=path, line=line)
        self._tiers = tiers_of(
            self._deployment, block_size=trace.block_size, capacity_blocks=capacity_blocks
        )

    @property
    def log(self) -> AuditLog | None:
        """Return the log as the audit needs it, None before `finish`."""
        return self._log

    @property
    def own_trace(self) -> BlockTrace | None:
        """Return the log's trace under the key of the engine's own pool; None without one.

        Servers have pools of their own: where there are several, they are kept apart.
        """
        log = self._log
        assert log is not None, "finish comes first"
        tier = self._own_tier
        if tier is None:
            return None
        trace = trace_for(log, tier)
        keys = tier_keys(log, trace, self._servers, tier)
        self._own_keys = keys
        if len(self._servers) > 1:
            first = numbered(keys.first, log.server)
            keys = replace(keys, first=first, rest=numbered(first, keys.rest))
        return separate_by_key(trace, keys)

    @property
    def _own_tier(self) -> TierFacts | None:
        log = self._log
        assert log is not None, "finish comes first"
        size = log.traces[0].block_size
        return next(
            (
                tier
                for tier in self._tiers
                if tier.tier.kind == "local-pool"
                and tier.block_size == size
                and can_replay(log, tier)
            ),
            None,
        )

    def report(
        self,
        *,
        own: tuple[HitCurve, Lookups] | None,
        endless: Lookups,
        reported: ReportedFacts | None = None,
        saved_flops: Callable[[Int64Array], float] | None,
        pool: PoolReplay | None = None,
        is_cold: bool = True,
    ) -> AuditReport:
        """Replay all tiers and run all rules.

        own          curve and hits of the engine's own pool, simulated on `own_trace`
        endless      the hits of an endless one
        reported     what servers reported, beside the replay
        saved_flops  FLOPs that the cached tokens of all requests (int64 [requests]) spare
        pool         replays a separated trace in the engine's own pool
        is_cold      False: `endless` is of a pool that wasn't empty; the audit's own replays are
        """
        log = self._log
        assert log is not None, "finish comes first"
        own_tier = self._own_tier
        replays: list[TierReplay] = []
        notes: list[str] = []
        if self.num_servers > 1:
            notes.append(
                f"{self.num_servers:,} servers: reuse and curve take their pools as one of all "
                "their blocks, in which requests of different servers share nothing; the audit "
                "replays each server's own pool (LRU)"
            )
        if not is_cold:
            notes.append(
                "the audit replays from an empty pool: who stored what it held before isn't known"
            )
        for tier in self._tiers:
            if not can_replay(log, tier):
                notes.append(
                    f"{tier.name}: its blocks of {tier.block_size} tokens can't be read from this "
                    "log: its lookups were not audited"
                )
                continue
            is_own = tier is own_tier and len(self._servers) == 1
            replays.append(
                replay_tier(
                    log,
                    self._servers,
                    tier,
                    keys=self._own_keys if is_own else None,
                    own=own if is_own else None,
                    pool=pool if is_own else None,
                )
            )
        subject = AuditSubject(
            servers=self._servers,
            tiers=self._tiers,
            adapters=adapters_of(self._deployment),
            has_tenants=has_tenants(self._deployment),
            replays=tuple(replays),
            figures=figures_of(replays),
            reported=reported,
        )
        local = next((r for r in replays if r.tier is own_tier), None)
        return AuditReport(
            num_rules=len(self._rules),
            findings=findings_of(self._rules, subject),
            tiers=tuple(self._figures(replay) for replay in replays),
            safe_this_pool_tokens=None
            if local is None or not is_cold
            else int(local.safe_lookups.num_cached_tokens.sum()),
            safe_endless_pool_tokens=None
            if local is None or not is_cold
            else self._safe_endless(local, endless),
            num_cross_tenant_private_tokens=_cross_tenant(replays),
            isolation=() if local is None else self._isolation(local, saved_flops, pool),
            proposed_public_prefixes=propose_prefixes(
                log.traces[0],
                min_tenants=_MIN_TENANTS_OF_A_PROPOSAL,
                public_tokens=log.public_tokens,
            ),
            num_public_tokens=int(log.public_tokens.sum()),
            rows=tuple(_rows(replay) for replay in replays),
            notes=tuple(notes),
        )

    def _safe_endless(self, local: TierReplay, endless: Lookups) -> int:
        keys = self._own_keys
        if keys is not None and local.trace.num_requests and is_complete(local.trace, keys):
            has_media = local.log.trace(local.tier.block_size) is not local.trace
            if not has_media and len(self._servers) == 1:
                return int(endless.num_cached_tokens.sum())
        if local.tier.capacity_blocks is None:
            return int(local.safe_lookups.num_cached_tokens.sum())
        hits = safe_hits(local.log, self._servers, local.tier, capacity_blocks=None)
        return int(hits.sum())

    def _isolation(
        self,
        local: TierReplay,
        saved_flops: Callable[[Int64Array], float] | None,
        pool: PoolReplay | None,
    ) -> tuple[IsolationRow, ...]:
        keys = self._own_keys or tier_keys(local.log, local.trace, self._servers, local.tier)
        apart = keys.apart
        if len(self._servers) > 1:
            apart = numbered(apart, local.log.server)
        return isolation_table(
            local.log,
            local.tier,
            apart=apart,
            ignored_fields=keys.ignored_fields,
            saved_flops=saved_flops,
            pool=pool if len(self._servers) == 1 else None,
        )

    def _figures(self, replay: TierReplay) -> TierFigures:
        tier = replay.tier
        gaps = key_gaps(
            replay.trace, replay.sharing, lambda fields: sharing_with(replay, self._servers, fields)
        )
        total = int(replay.trace.num_prompt_tokens.sum())
        cached = int(replay.lookups.num_cached_tokens.sum())
        safe = int(replay.safe_lookups.num_cached_tokens.sum())
        version = tier.profile.facts_version
        return TierFigures(
            name=tier.name,
            kind=tier.tier.kind,
            engine=tier.profile.name if version is None else f"{tier.profile.name} {version}",
            block_size=tier.block_size,
            capacity_blocks=tier.capacity_blocks,
            servers=tier.servers,
            num_cached_tokens=cached,
            token_hit_rate=cached / total if total else None,
            num_safe_cached_tokens=safe,
            safe_token_hit_rate=safe / total if total else None,
            num_unsafe_requests=gaps.num_requests,
            num_unsafe_tokens=gaps.num_tokens,
            gaps=gaps.fields,
            smallest_closing_fields=gaps.smallest,
        )


def _rows(replay: TierReplay) -> TierRows:
    sharing = replay.sharing
    tokens = unsafe_tokens(sharing, unsafe_masks(sharing))
    unsafe = np.zeros(replay.trace.num_requests, dtype=np.int64)
    np.add.at(unsafe, sharing.reader, tokens)
    return TierRows(
        name=replay.tier.name,
        num_cached_tokens=replay.lookups.num_cached_tokens,
        num_safe_cached_tokens=replay.safe_lookups.num_cached_tokens,
        num_unsafe_tokens=unsafe,
    )


def _cross_tenant(replays: Sequence[TierReplay]) -> int:
    """Return the private tokens that requests got from other owners' blocks, over all KV tiers."""
    from prefixaudit.audit.sharing import mask_of

    mask = np.uint32(mask_of(_OWNER_FIELDS))
    return sum(
        int(r.sharing.num_private_tokens[(r.sharing.differing & mask) != 0].sum())
        for r in replays
        if r.tier.tier.kind != "router-index"
    )


def _public_ids(deployment: Deployment, options: ReplayOptions) -> list[TokenArray]:
    """Return the token ids of the declared public prefixes, but those declared by a hash.

    Raises ConfigurationError for a prefix that can't be rendered or encoded.
    """
    found: list[TokenArray] = []
    problems: list[str] = []
    for prefix in deployment.public_prefixes:
        if prefix.token_ids is not None:
            found.append(np.array(prefix.token_ids, dtype=np.uint32))
        elif prefix.text is not None or prefix.message is not None:
            ids = _encoded(prefix, deployment, options)
            if isinstance(ids, Skipped):
                problems.append(f"public prefix '{prefix.name}': {ids.reason}")
            else:
                found.append(ids)
    if problems:
        raise ConfigurationError(problems)
    return found


def _encoded(
    prefix: PublicPrefix, deployment: Deployment, options: ReplayOptions
) -> TokenArray | Skipped:
    from prefixaudit.prompts import Replayer

    if prefix.message is not None:
        prompt: ChatMessages | RawText = ChatMessages(
            messages=[prefix.message], add_generation_prompt=False
        )
    else:
        prompt = RawText(text=prefix.text or "")
    request = Request(request_id="public", source=Source("public prefix", 0), prompt=prompt)
    replayed = Replayer(deployment.model_dir, options).replay(request)
    if isinstance(replayed, Skipped):
        return replayed
    assert isinstance(replayed.tokens, np.ndarray), "text gives token ids"
    return replayed.tokens
