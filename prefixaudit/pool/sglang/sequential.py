"""A whole BlockTrace through SGLang's pool, one request after another.

A log says who came when, not how long each ran: requests are served one at a time, so nothing is
locked but the request itself. What concurrency adds (locked nodes, retraction, the in-batch rule
that defers equal prompts) is not in these figures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int32Array
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.explicit_blocks import block_ids, lookups_of
from prefixaudit.pool.sglang.rules import SglangRules
from prefixaudit.pool.sglang.scheduler import SglangPool

_NO_DONORS: Int32Array = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialReplay:
    """Lookups in the trace's order, and what happened to the pool on the way.

    num_refused       requests with a prompt larger than the pool: they hit and store nothing
    num_cut_answers   requests whose answer found no further slot and ended there
    """

    lookups: Lookups
    num_evicted_tokens: int
    num_refused: int
    num_cut_answers: int


def replay_sequential(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_tokens: int | None,
    policy: str,
    rules: SglangRules,
    priorities: Int32Array | None = None,
) -> SequentialReplay:
    """Serve the requests in order of arrival from a pool of `capacity_tokens`; None is endless.

    The trace's block size is the page size. Requests of equal `namespaces` (int32 [requests]) share
    blocks; `priorities` (int32 [requests]) matter to the policy `priority` only. Raises UsageError
    for an unknown policy.
    """
    block_size = trace.block_size
    if capacity_tokens is None:
        capacity_tokens = (trace.num_distinct_blocks + 2) * block_size * (
            int(namespaces.max(initial=0)) + 1
        ) + int(trace.num_prompt_tokens.max(initial=0) + trace.num_generated_tokens.max(initial=0))
    pool = SglangPool(
        capacity_tokens=capacity_tokens,
        block_size=block_size,
        policy=POLICIES[policy],
        rules=rules,
    )
    donor_blocks: list[Int32Array] = [_NO_DONORS] * trace.num_requests
    num_refused = num_cut = 0
    for position in trace.replay_order().tolist():
        num_prompt_tokens = int(trace.num_prompt_tokens[position])
        if -(-num_prompt_tokens // block_size) * block_size > pool.num_tokens:
            num_refused += 1
            continue
        ids = block_ids(trace, position)
        num_hit_tokens, request = pool.add(
            ids[: num_prompt_tokens // block_size],
            num_prompt_tokens,
            donor=position,
            namespace=int(namespaces[position]),
            priority=0 if priorities is None else int(priorities[position]),
            reads_cache=bool(trace.reads_cache[position]),
        )
        assert request is not None, "an idle pool has room for a prompt that fits"
        num_hit = num_hit_tokens // block_size
        donor_blocks[position] = pool.tree.donors(request.node)[:num_hit]
        num_generated = int(trace.num_generated_tokens[position])
        num_cut += pool.extend(request, num_generated) < num_generated
        pool.free(request, ids)
    return SequentialReplay(
        lookups=lookups_of(donor_blocks, block_size),
        num_evicted_tokens=pool.num_evicted_tokens,
        num_refused=num_refused,
        num_cut_answers=num_cut,
    )
