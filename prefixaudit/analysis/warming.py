"""A pool that isn't empty at the start: what a dump of KV events says it held goes before the log.

The dump's prefixes are served first, in the order in which they were stored; they count in no
figure, index or row of the log. They have tokens, but little identity: what the events don't say
(model, adapter's revision, …) is that of the log's requests where these all agree, since a dump is
of one server. Where they don't, or a block's key holds what events don't name (an image, another
salt), blocks take room and are never hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixaudit.analysis.simulating import Simulated, key_namespaces, simulate
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.identity import Identity
from prefixaudit.core.pool import HitCurve, Lookups, WarmStart
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import TokenIds
from prefixaudit.core.trace import BlockTrace, Float64Array
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import UsageError
from prefixaudit.pool import hit_rates

if TYPE_CHECKING:
    from prefixaudit.core.engine import EngineProfile
    from prefixaudit.deployment import Deployment
    from prefixaudit.logs.kv_events import PoolContents, StoredPrefix


class Warming:
    """The starting contents of one run's pool, in one tree with the log."""

    def __init__(self, path: Path, deployment: Deployment) -> None:
        """Raises IncompleteError for a dump that can't be read, UsageError for several servers."""
        from prefixaudit.logs.kv_events import read_pool_contents

        if len(deployment.servers) > 1:
            raise UsageError(
                f"--warm-from {path}: a dump is of one server's pool; this deployment has "
                f"{len(deployment.servers)} servers"
            )
        self.contents: PoolContents = read_pool_contents(str(path))
        self._complete = deployment.complete
        self._builder: TraceBuilder | None = None
        self._num_warm = 0
        self._trace: BlockTrace | None = None
        self._num_unnamed = 0

    def start(self, block_size: int, *, holds_ids: bool, cache_generated: bool) -> None:
        """Put the contents before the log, which holds block ids or tokens.

        Raises UsageError for a log of block ids: they can't be compared with tokens.
        """
        if holds_ids:
            raise UsageError(
                f"--warm-from {self.contents.path}: the log holds block ids, and a dump of KV "
                "events tokens; expected a log with prompts"
            )
        self._builder = TraceBuilder(block_size=block_size, cache_generated=cache_generated)
        for request in self.contents.requests():
            assert isinstance(request.prompt, TokenIds)
            tokens = request.prompt.token_ids
            self._builder.add(
                Prompt(
                    request=request,
                    tokens=tokens,
                    num_prompt_tokens=len(tokens),
                    generated_token_ids=None,
                ),
                -1,
            )
            self._num_warm += 1

    def add(self, prompt: Prompt, index: int) -> None:
        """Add a prompt that the log's own trace has taken."""
        assert self._builder is not None, "start comes first"
        self._builder.add(prompt, index)

    def most_blocks(self) -> int:
        """Return the length in blocks of the longest prompt, the dump's prefixes included."""
        return int(self._whole().num_blocks.max(initial=0))

    def _whole(self) -> BlockTrace:
        if self._trace is None:
            assert self._builder is not None, "start comes first"
            self._trace = self._builder.finish()
        return self._trace

    def simulate(
        self,
        fields: tuple[str, ...],
        *,
        engine: EngineProfile | None,
        policy: str | None,
        capacity_blocks: int | None,
        flops_by_depth: Float64Array | None,
    ) -> Simulated:
        """Return the log's hits in a pool that starts with the dump's blocks; see `simulate`."""
        num_warm = self._num_warm
        trace = self._identified(fields)
        settings: Mapping[str, Any] = {
            "engine": engine,
            "policy": policy,
            "flops_by_depth": flops_by_depth,
        }
        whole = simulate(trace, fields, capacity_blocks=capacity_blocks, **settings)
        if not num_warm:
            return whole
        dump = trace.of_requests(np.arange(num_warm, dtype=np.int64))
        alone = simulate(dump, fields, capacity_blocks=None, **settings)
        namespaces = key_namespaces(trace, fields, engine)

        def rates(of: Lookups, capacity: int | None) -> Any:
            return hit_rates(
                trace,
                namespaces,
                of.num_cached_tokens,
                capacity_blocks=capacity,
                num_uncounted=num_warm,
            )

        endless_rates = rates(whole.endless_lookups, None)
        return replace(
            whole,
            curve=_difference(whole.curve, alone.curve),
            points={
                capacity: _without_first(lookups, num_warm)
                for capacity, lookups in whole.points.items()
            },
            lookups=_without_first(whole.lookups, num_warm),
            rates=endless_rates
            if capacity_blocks is None
            else rates(whole.lookups, capacity_blocks),
            endless_lookups=_without_first(whole.endless_lookups, num_warm),
            endless_rates=endless_rates,
        )

    def facts(self) -> WarmStart:
        """Return what the pool starts with, for the report; after `simulate`."""
        contents = self.contents
        return WarmStart(
            path=contents.path,
            block_size=contents.block_size,
            num_prefixes=len(contents.prefixes),
            num_tokens=sum(prefix.num_new_tokens for prefix in contents.prefixes),
            num_blocks=contents.num_blocks,
            num_unrooted_blocks=contents.num_unrooted_blocks,
            num_unreachable_blocks=contents.num_unreachable_blocks,
            num_other_media_blocks=contents.num_other_media_blocks,
            num_unnamed_prefixes=self._num_unnamed,
            num_unreadable=sum(contents.num_unreadable.values()),
        )

    def notes(self, block_size: int) -> Iterator[str]:
        """Yield what is to be said of the contents; after `simulate`."""
        facts = self.facts()
        yield (
            f"the pool starts with {facts.num_tokens:,} tokens of {facts.num_prefixes:,} prefixes "
            f"by {facts.path}: they count in no figure of the log"
        )
        if facts.block_size != block_size:
            yield (
                f"the dump's blocks have {facts.block_size:,} tokens, the pool's {block_size:,}: "
                "prefixes are cut into the pool's"
            )
        left_out = {
            "were stored before the dump began": facts.num_unrooted_blocks,
            "stand behind removed ones": facts.num_unreachable_blocks,
            "are on other media": facts.num_other_media_blocks,
        }
        said = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count)
        if said:
            yield f"blocks of the dump that were left out: {said}"
        if facts.num_unnamed_prefixes:
            yield (
                f"{facts.num_unnamed_prefixes:,} prefixes of the dump are of a salt, an image or "
                "an adapter that its events or the log don't name: they take room and are never hit"
            )
        if facts.num_unreadable:
            yield f"{facts.num_unreadable:,} events of the dump can't be read"

    def _identified(self, fields: tuple[str, ...]) -> BlockTrace:
        """Return the trace with the dump's prefixes before everything, and their identities."""
        trace = self._whole()
        counted = Counter(trace.identity[self._num_warm :].tolist())
        known = [trace.identities[number] for number in counted]
        numbers = {identity: number for number, identity in enumerate(trace.identities)}
        identity, arrival_s = trace.identity.copy(), trace.arrival_s.copy()
        self._num_unnamed = 0
        pairs = zip(self.contents.prefixes, self.contents.requests(), strict=True)
        for position, (prefix, request) in enumerate(pairs):
            found = _identity(prefix, self._complete(request).identity, known, fields)
            if found is None:
                self._num_unnamed += 1
                # A name that no request has: the blocks take room and match nothing.
                found = Identity(model=f"\0{request.request_id}")
            identity[position] = numbers.setdefault(found, len(numbers))
        arrival_s[: self._num_warm] = -np.inf
        return replace(trace, identities=tuple(numbers), identity=identity, arrival_s=arrival_s)


def _identity(
    prefix: StoredPrefix, own: Identity, known: Iterable[Identity], fields: tuple[str, ...]
) -> Identity | None:
    """Return whose blocks a prefix is as far as the key tells, None where the dump doesn't say."""
    if prefix.lora_name is UNKNOWN and isinstance(prefix.lora_id, int):
        return None
    told: dict[str, str | None] = {}
    if prefix.lora_name is not UNKNOWN or prefix.lora_id is None:
        told["lora_name"] = None if prefix.lora_name is UNKNOWN else prefix.lora_name
    if prefix.extra_keys is not None:
        more = _unnamed_keys(prefix)
        if not more:
            told["cache_salt"] = None
        elif len(more) == 1 and isinstance(more[0], str):
            # Of what is in a first block's key, only a salt is text that requests carry as such.
            told["cache_salt"] = more[0]
        else:
            return None
    alike = [
        identity
        for identity in known
        if all(_agrees(getattr(identity, name), value) for name, value in told.items())
    ]
    values = {}
    for name in fields:
        found = {getattr(identity, name) for identity in alike}
        if name in told and told[name] is not None:
            values[name] = told[name]
        elif len(found) == 1:
            values[name] = found.pop()
        else:
            return None
    return replace(own, **values)


def _agrees(value: object, told: str | None) -> bool:
    """Say whether a request's field may be what a dump tells; not recorded is taken for absent."""
    return value == told or (told is None and value is UNKNOWN)


def _unnamed_keys(prefix: StoredPrefix) -> list[Any]:
    """Return what is in the blocks' extra keys beside the adapter: a salt is in the first only."""
    own = (prefix.lora_name, prefix.lora_id)
    return [
        key
        for keys in prefix.extra_keys or ()
        for key in (keys if isinstance(keys, list | tuple) else () if keys is None else (keys,))
        if not isinstance(key, int | str) or key not in own
    ]


def _difference(whole: HitCurve, part: HitCurve) -> HitCurve:
    """Return the hits of a log alone, at every capacity, out of those with its dump before it."""

    def minus(values: Any, others: Any) -> Any:
        if not len(values) or not len(others):
            return values
        places = np.minimum(np.arange(len(values)), len(others) - 1)
        return values - others[places]

    return HitCurve(
        num_cached_blocks=minus(whole.num_cached_blocks, part.num_cached_blocks),
        flops_saved=minus(whole.flops_saved, part.flops_saved),
    )


def _without_first(lookups: Lookups, num_warm: int) -> Lookups:
    """Leave out the first rows; their blocks' donor is -1."""
    start = int(lookups.donor_offsets[num_warm])
    donors = np.maximum(lookups.donors[start:].astype(np.int64) - num_warm, -1)
    return Lookups(
        num_cached_tokens=lookups.num_cached_tokens[num_warm:],
        donor_offsets=lookups.donor_offsets[num_warm:] - start,
        donors=donors.astype(np.int32),
        donor_num_tokens=lookups.donor_num_tokens[start:],
    )
