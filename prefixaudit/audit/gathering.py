"""What the audit notes of each request while the log is read: its server, its public beginning.

Prompts go by once. A tier whose blocks are of another size, or whose key holds media in
another form, gets a trace of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prefixaudit.audit.facts import servers_of
from prefixaudit.audit.media import MediaForm, media_as, media_form_of
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.audit import AuditLog, TierFacts
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, TokenArray
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment


class AuditGatherer:
    """Gathers an AuditLog beside the trace that is built anyway.

    `public_ids` are the token ids of declared public prefixes, `public_hashes` those declared by
    the digest of their last block (32 hex digits).
    """

    def __init__(
        self,
        deployment: Deployment,
        tiers: Sequence[TierFacts],
        *,
        block_size: int,
        cache_generated: bool,
        public_ids: Sequence[TokenArray] = (),
        public_hashes: Sequence[str] = (),
    ) -> None:
        """`block_size` is that of the trace that is built anyway."""
        self._deployment = deployment
        self._servers = tuple(server.name for server in servers_of(deployment))
        self._numbers = {name: number for number, name in enumerate(self._servers)}
        self._unnamed = 0 if len(self._servers) == 1 else -1
        self._public_ids = [np.asarray(ids, dtype=np.uint32) for ids in public_ids if len(ids)]
        self._public_hashes = tuple(public_hashes)
        sizes = sorted({tier.block_size for tier in tiers} - {block_size})
        self._builders = [
            TraceBuilder(block_size=size, cache_generated=cache_generated) for size in sizes
        ]
        forms = {(media_form_of(tier.tier), tier.block_size) for tier in tiers}
        self._media_builders: dict[tuple[MediaForm, int], TraceBuilder] = {
            (form, size): TraceBuilder(block_size=size, cache_generated=cache_generated)
            for form, size in sorted(forms)
            if form != "full"
        }
        self._has_media = False
        self._server = array("i")
        self._public = array("q")

    def add(self, prompt: Prompt, index: int) -> None:
        """Note the next prompt, which the trace has taken."""
        server = prompt.request.server
        number = self._unnamed if server is UNKNOWN else self._numbers.get(server, self._unnamed)
        self._server.append(number)
        if isinstance(prompt.tokens, BlockHashes):
            # Ids of blocks can't be read in blocks of another size, nor without their media.
            self._builders, self._media_builders = [], {}
            self._public.append(0)
            return
        self._public.append(self._public_length(prompt.tokens))
        for builder in self._builders:
            builder.add(prompt, index)
        self._has_media = self._has_media or bool(prompt.media)
        for (form, size), builder in self._media_builders.items():
            media = media_as(form, prompt.media, block_size=size) if prompt.media else ()
            builder.add(replace(prompt, media=media) if prompt.media else prompt, index)

    def add_batch(self, batch: TraceBatch) -> None:
        """Note the next requests, which the trace has taken; they came as columns."""
        self._builders, self._media_builders = [], {}
        self._server.extend([self._unnamed] * len(batch))
        self._public.extend([0] * len(batch))

    def _public_length(self, tokens: TokenArray) -> int:
        longest = 0
        for prefix in self._public_ids:
            length = min(len(prefix), len(tokens))
            apart = np.flatnonzero(prefix[:length] != tokens[:length])
            longest = max(longest, int(apart[0]) if len(apart) else length)
        return longest

    def finish(
        self, trace: BlockTrace, *, paths: Sequence[str], path: Int32Array, line: Int64Array
    ) -> AuditLog:
        """Return the log, given the main trace and where its requests stand (path, line)."""
        if not self._server:  # a trace that was read back: its prompts never went by
            self._builders, self._media_builders = [], {}
            self._server = array("i", [self._unnamed]) * trace.num_requests
            self._public = array("q", [0]) * trace.num_requests
        server = np.array(self._server, dtype=np.int32)
        traces = (trace, *(builder.finish() for builder in self._builders))
        public = np.array(self._public, dtype=np.int64)
        for digest in self._public_hashes:
            for each in traces:
                public = np.maximum(public, _tokens_under(each, digest))
        timeline = self._deployment.timeline
        epoch = store_epoch = np.zeros(trace.num_requests, dtype=np.int32)
        if timeline is not None:
            defaults = [_empties_on_update(self._deployment, name) for name in self._servers]
            epoch, store_epoch = (
                timeline.epochs(
                    trace.arrival_s,
                    server,
                    self._servers,
                    empties_by_default=defaults,
                    of_stores=of_stores,
                )
                for of_stores in (False, True)
            )
        return AuditLog(
            traces=traces,
            media_traces=self._media_traces(),
            server=server,
            epoch=epoch,
            store_epoch=store_epoch,
            public_tokens=public,
            changed_fields=frozenset() if timeline is None else timeline.changed_fields,
            paths=tuple(paths),
            path=path,
            line=line,
        )

    def _media_traces(self) -> dict[str, tuple[BlockTrace, ...]]:
        traces: dict[str, tuple[BlockTrace, ...]] = {}
        if self._has_media:
            for (form, _), builder in self._media_builders.items():
                traces[form] = (*traces.get(form, ()), builder.finish())
        return traces


def _empties_on_update(deployment: Deployment, server: str) -> bool:
    """Say whether a weight update that doesn't tell empties the pool (SGLang's flush_cache)."""
    engine = deployment.engine
    for facts in servers_of(deployment):
        if facts.name == server and facts.engine is not None:
            engine = facts.engine
    return engine is not None and engine.name == "sglang"


def _tokens_under(trace: BlockTrace, digest: str) -> Int64Array:
    """Return the tokens up to the block with a digest, for the requests that pass it; else 0."""
    label = np.frombuffer(bytes.fromhex(digest), dtype="<u8")
    tree = trace.tree
    found = np.flatnonzero((tree.labels == label).all(axis=1))
    tokens = np.zeros(trace.num_requests, dtype=np.int64)
    if not len(found) or not len(tree.parent):
        return tokens
    by_first = np.argsort(tree.first_block, kind="stable")
    for block in found.tolist():
        place = np.searchsorted(tree.first_block[by_first], block, side="right") - 1
        node = int(by_first[place])
        length = int(tree.depth_blocks[node]) + block - int(tree.first_block[node]) + 1
        passes = np.zeros(len(tree.parent) + 1, dtype=np.bool_)
        passes[node] = True
        while True:
            below = passes[tree.parent] & ~passes[:-1] & (tree.parent >= 0)
            if not below.any():
                break
            passes[:-1] |= below
        # A request without a full block has node -1: the last, which nothing passes.
        tokens[passes[trace.node]] = np.maximum(
            tokens[passes[trace.node]], length * trace.block_size
        )
    return tokens
