"""The audit beside the figures: what is gathered on the way, and what comes of it.

    auditing = Auditing(deployment, ...)       start, add: while the log is read
    auditing.finish(trace, rows)               the log as the audit needs it
    auditing.own_trace                         what the engine's own pool is simulated on
    auditing.report(simulated, ...)            findings, the tiers' figures, what isolation costs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from prefixaudit.audit.facts import adapters_of, servers_of, tiers_of
from prefixaudit.audit.false_hits import key_gaps
from prefixaudit.audit.findings import figures_of, findings_of
from prefixaudit.audit.gathering import AuditGatherer
from prefixaudit.audit.isolation import isolation_table
from prefixaudit.audit.public import ProposedPrefix, propose_prefixes
from prefixaudit.audit.rules import load_rules
from prefixaudit.audit.tiers import (
    TierKeys,
    replay_tier,
    replay_tiers,
    separate_by_key,
    tier_keys,
)
from prefixaudit.core.audit import AuditLog, AuditSubject, TierFacts, TierReplay
from prefixaudit.core.pool import HitCurve, Lookups
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.report import AuditReport, TierFigures
from prefixaudit.core.request import ChatMessages, RawText, Request, Source, TokenArray
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.public import PublicPrefix
from prefixaudit.errors import ConfigurationError
from prefixaudit.pool.separate import numbered
from prefixaudit.prompts import Replayer, ReplayOptions

_MIN_TENANTS_OF_A_PROPOSAL = 3


class Auditing:
    """One run's audit. `capacity_blocks` and `block_size` are the own pool's."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        cache_generated: bool,
        replay_options: ReplayOptions,
    ) -> None:
        self.deployment = deployment
        self._cache_generated = cache_generated
        self._replay_options = replay_options
        self._gatherer: AuditGatherer | None = None
        self._log: AuditLog | None = None
        self.servers = servers_of(deployment)
        self.tiers: tuple[TierFacts, ...] = ()

    def start(self, block_size: int) -> None:
        """Get ready for prompts; `block_size` is that of the trace that is built anyway."""
        tiers = tiers_of(self.deployment, block_size=block_size, capacity_blocks=None)
        self._gatherer = AuditGatherer(
            self.deployment,
            tiers,
            block_size=block_size,
            cache_generated=self._cache_generated,
            public_ids=_public_ids(self.deployment, self._replay_options),
            public_hashes=[p.hash for p in self.deployment.public_prefixes if p.hash is not None],
        )

    def add(self, prompt: Prompt, index: int) -> None:
        """Note a prompt that the trace has taken."""
        assert self._gatherer is not None, "start comes first"
        self._gatherer.add(prompt, index)
''' if False else '''
