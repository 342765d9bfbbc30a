"""Runs the examples of a rule: a few invented requests under a small deployment.

    requests = [
      { id = "a", tokens = "system:64 a:20", lora_name = "sql", lora_revision = "1" },
      { id = "b", tokens = "system:64 b:20", lora_name = "sql", lora_revision = "2" },
    ]
    findings = ["b <- a"]

tokens     "NAME:COUNT …": the first COUNT tokens of each segment; equal names give equal tokens
media      [{ identifier = "…", offset = 32, num_tokens = 64 }]
fields of the identity: text, or false: known to be absent. Those that are left out are absent too,
           but for the deployment's own; `unknown = ["tenant"]` makes fields UNKNOWN
at         seconds at which the request came; by default 0, 1, 2 … in the order written
num_prompt_tokens, num_cached_tokens   as the server reported; false: null
reads_cache, session   as in a log; anything else is a field for rules of tenant and server

`readings` are an engine's figures of itself, by the names of core.reading.EngineReading.

`findings` are pairs `reader <- donor`, request ids where there is no donor, and subjects where
there is no request; `inconclusive: …` where the verdict is that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from prefixaudit.audit.facts import adapters_of, has_tenants, servers_of, tiers_of
from prefixaudit.audit.findings import figures_of, findings_of
from prefixaudit.audit.gathering import AuditGatherer
from prefixaudit.audit.reported import ReplayedHits, reported_facts, reported_numbers
from prefixaudit.audit.tiers import replay_tiers
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.audit import AuditSubject, TierReplay
from prefixaudit.core.finding import Finding
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.reading import EngineReading
from prefixaudit.core.reported import ReportedFacts, UsageColumns
from prefixaudit.core.request import MediaSpan, Request, Source, TokenArray, TokenIds, Usage
from prefixaudit.core.rule import Rule, RuleExample
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.events import Event, event_of, timeline_of
from prefixaudit.deployment.file import read_document
from prefixaudit.errors import ConfigurationError
from prefixaudit.tables import Table, TomlDocument

_START_S: Final = 1_772_438_400.0


def run_example(rule: Rule, example: RuleExample) -> tuple[str, ...]:
    """Return what the rule finds in its example, in the spelling of `findings`, sorted.

    Raises ConfigurationError where the example can't be read.
    """
    subject = subject_of_example(rule, example)
    found: set[str] = set()
    for finding in findings_of([rule], subject):
        found |= set(_spelled(finding))
    return tuple(sorted(found))


def _spelled(finding: Finding) -> tuple[str, ...]:
    observation = finding.observation
    prefix = "inconclusive: " if observation.verdict == "inconclusive" else ""
    if not observation.evidence:
        return (f"{prefix}{observation.subject}",)
    return tuple(
        f"{prefix}{pair.reader} <- {pair.donor}" if pair.donor else f"{prefix}{pair.reader}"
        for pair in observation.evidence
    )


def subject_of_example(rule: Rule, example: RuleExample) -> AuditSubject:
    """Return the deployment and the replayed requests of an example."""
    where = f"{rule.path}: example '{example.name}'"
    deployment = _deployment(example, where)
    prompts = [
        _prompt(table, deployment, number, where) for number, table in enumerate(example.requests)
    ]
    engine = deployment.engine
    block_size = deployment.block_size or (16 if engine is None else engine.default_block_size)
    capacity = None if deployment.capacity is None else deployment.capacity.in_blocks(block_size, 1)
    tiers = tiers_of(deployment, block_size=block_size, capacity_blocks=capacity)
    servers = servers_of(deployment)
    facts: dict[str, Any] = {
        "servers": servers,
        "tiers": tiers,
        "adapters": adapters_of(deployment),
        "has_tenants": has_tenants(deployment),
    }
    if not prompts:
        return AuditSubject(**facts)
    builder = TraceBuilder(block_size=block_size, cache_generated=False)
    gatherer = AuditGatherer(
        deployment,
        tiers,
        block_size=block_size,
        cache_generated=False,
        public_ids=[_public_ids(prefix.text) for prefix in deployment.public_prefixes],
    )
    for index, prompt in enumerate(prompts):
        builder.add(prompt, index)
        gatherer.add(prompt, index)
    log = gatherer.finish(
        builder.finish(),
        paths=(),
        path=np.empty(0, dtype=np.int32),
        line=np.empty(0, dtype=np.int64),
    )
    replays = replay_tiers(log, servers, tiers)
    return AuditSubject(
        **facts,
        replays=replays,
        figures=figures_of(replays),
        reported=_reported(example, prompts, replays, deployment),
    )


def _reported(
    example: RuleExample,
    prompts: Sequence[Prompt],
    replays: Sequence[TierReplay],
    deployment: Deployment,
) -> ReportedFacts | None:
    local = next((r for r in replays if r.tier.tier.kind == "local-pool"), None)
    if local is None:
        return None
    usages = [prompt.request.usage for prompt in prompts]
    return reported_facts(
        UsageColumns(
            index=np.arange(len(prompts), dtype=np.int64),
            position=np.arange(len(prompts), dtype=np.int64),
            prompt_tokens=reported_numbers(usage.num_prompt_tokens for usage in usages),
            cached_tokens=reported_numbers(usage.num_cached_tokens for usage in usages),
            completion_tokens=reported_numbers(usage.num_completion_tokens for usage in usages),
            server=np.full(len(prompts), -1, dtype=np.int64),
            is_approximate=np.zeros(len(prompts), dtype=np.bool_),
            counted_outside=np.zeros(len(prompts), dtype=np.bool_),
        ),
        replayed=ReplayedHits(
            trace=local.trace,
            log=local.log,
            this_pool=local.lookups.num_cached_tokens,
            endless_pool=local.lookups.num_cached_tokens,
            capacity_blocks=local.tier.capacity_blocks,
            min_recomputed_tokens=local.tier.profile.min_recomputed_tokens,
        ),
        readings=[
            EngineReading(source=Source("engine.log", number), **reading)
            for number, reading in enumerate(example.readings, 1)
        ],
        engine=deployment.engine,
        settings=deployment.engine_settings,
    )


def _deployment(example: RuleExample, where: str) -> Deployment:
    document = TomlDocument(where, "")
    document.root = Table(document, (), example.deployment)
    deployment = read_document(document, Path(where))
    events: list[Event] = []
    for record in example.events:
        moment = record.get("at")
        if not isinstance(moment, int | float):
            raise ConfigurationError(f"{where}: an event has no `at`; expected seconds")
        event = event_of({**record, "timestamp": _START_S + moment})
        if isinstance(event, str):
            raise ConfigurationError(f"{where}: event: {event}")
        events.append(event)
    return replace(deployment, timeline=timeline_of(events)) if events else deployment


def tokens_of(text: str, where: str = "tokens") -> TokenArray:
    """Return the ids (uint32) of a text such as "system:64 a:20"."""
    parts: list[TokenArray] = []
    for word in text.split():
        name, _, count = word.partition(":")
        if not name or not count.isdecimal():
            raise ConfigurationError(f"{where}: '{word}' is no segment; expected NAME:COUNT")
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "little") << 8
        parts.append((start + np.arange(int(count), dtype=np.uint32)).astype(np.uint32))
    return np.concatenate([np.empty(0, dtype=np.uint32), *parts])


def _public_ids(text: str | None) -> TokenArray:
    return tokens_of(text or "")


def _prompt(table: Mapping[str, Any], deployment: Deployment, number: int, where: str) -> Prompt:
    if "id" not in table or not isinstance(table.get("tokens"), str):
        raise ConfigurationError(f"{where}: a request has no `id` or no `tokens`")
    token_ids = tokens_of(table["tokens"], where)
    media = tuple(MediaSpan(**span) for span in table.get("media", ()))
    given = {
        name: None if table[name] is False else table[name]
        for name in IDENTITY_FIELDS
        if name in table
    }
    unknown = dict.fromkeys(table.get("unknown", ()), UNKNOWN)
    cached = table.get("num_cached_tokens", UNKNOWN)
    request = Request(
        request_id=str(table["id"]),
        source=Source("example", number + 1),
        prompt=TokenIds(token_ids=token_ids, media=media),
        arrival_s=_START_S + table.get("at", number),
        identity=Identity(**given),
        session_id=table.get("session", UNKNOWN),
        reads_cache=table.get("reads_cache", True),
        usage=Usage(
            num_prompt_tokens=table.get("num_prompt_tokens", UNKNOWN),
            num_cached_tokens=None if cached is False else cached,
        ),
        record=table,
    )
    request = deployment.complete(request)
    absent = {
        name: None
        for name in IDENTITY_FIELDS
        if name not in unknown and getattr(request.identity, name) is UNKNOWN
    }
    # Who the request belongs to is the trust domain's to say where there is one.
    identity = replace(request.identity, **absent, **unknown)
    return Prompt(
        request=replace(request, identity=identity),
        tokens=token_ids,
        num_prompt_tokens=len(token_ids),
        generated_token_ids=UNKNOWN,
        media=media,
    )
