"""A whole BlockTrace through vLLM's pool, one request after another: add, decode, free.

A log says who came when, not how long each ran, so a request is alone in the pool while it runs.
What concurrency adds (blocks pinned by others, prefixes not computed yet, preemption) is the
scheduler's part. Requests are served by the engine's own operations: this is the reference that
faster replays are held against.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixaudit.core.pool import Lookups
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.errors import UsageError
from prefixaudit.pool.explicit_blocks import block_ids, lookups_of
from prefixaudit.pool.vllm.block_pool import NULL_BLOCK
from prefixaudit.pool.vllm.coordinator import Hit
from prefixaudit.pool.vllm.groups._group import blocks_for
from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.prompt_runner import PromptRunner
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules

_NO_DONORS: Int32Array = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialReplay:
    """Lookups in the trace's order, and what happened to the pool on the way.

    num_evicted_keys  block keys forgotten because their block was handed out
    refused           int64, positions of the requests whose prompt never fits: they hit and store
                      nothing
    cut_answers       int64, positions of the requests whose answer found no further block
    """

    lookups: Lookups
    num_evicted_keys: int
    refused: Int64Array
    cut_answers: Int64Array


def replay_sequential(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    capacity_blocks: int | None,
    rules: PoolRules,
    max_num_batched_tokens: int | None = None,
) -> SequentialReplay:
    """Serve the requests in order of arrival from a pool of `capacity_blocks`; None is endless.

    The capacity counts the blocks that can be used: vLLM's `num_gpu_blocks` is one more, its null
    block. With several groups it is shared by all of them. Requests of equal `namespaces` (int32
    [requests]) share blocks. Prompts are computed in chunks of at most `max_num_batched_tokens`
    (None: as a whole), which matters to windows and recurrent states only. Raises UsageError if
    the trace's block size isn't the unit of the pool's keys.

    A hit is given to the request that stored each block of the first group; where a window left
    none, to the one that stored the next block after it, which had the whole prefix.
    """
    if trace.block_size != rules.hash_block_size:
        raise UsageError(
            f"the trace has blocks of {trace.block_size} tokens, the pool is keyed by "
            f"{rules.hash_block_size}; build the trace with the pool's unit"
        )
    serve = _Server(trace, namespaces, capacity_blocks, rules, max_num_batched_tokens)
    donors: list[Int32Array] = [_NO_DONORS] * trace.num_requests
    refused: list[int] = []
    cut: list[int] = []
    for position in trace.replay_order().tolist():
        request = serve.request(position)
        donors[position] = serve.add(request)
        if request.num_computed_tokens < request.num_prompt_tokens:
            refused.append(position)
            continue
        if not serve.decode(request, int(trace.num_generated_tokens[position])):
            cut.append(position)
        serve.manager.free(request)
    return SequentialReplay(
        lookups=lookups_of(donors, rules.hash_block_size),
        num_evicted_keys=serve.num_evicted_keys,
        refused=np.asarray(refused, dtype=np.int64),
        cut_answers=np.asarray(cut, dtype=np.int64),
    )


class _Server:
    """The pool and what one request after another does to it."""

    def __init__(
        self,
        trace: BlockTrace,
        namespaces: Int32Array,
        capacity_blocks: int | None,
        rules: PoolRules,
        max_num_batched_tokens: int | None,
    ) -> None:
        self._trace = trace
        self._namespaces = namespaces
        self._rules = rules
        lengths = trace.num_prompt_tokens + trace.num_generated_tokens
        longest = max(int(lengths.max(initial=0)), 1)
        budget = longest if max_num_batched_tokens is None else max_num_batched_tokens
        if budget < 1:
            raise UsageError(f"max_num_batched_tokens {budget}; expected 1 or more")
        if capacity_blocks is None:
            # Nothing is ever evicted where every block of every request has one of its own.
            capacity_blocks = sum(
                int((lengths // group.block_size + 1).sum()) for group in rules.groups
            )
        self.manager = PoolManager(
            rules,
            capacity_blocks + 1,
            max_model_tokens=longest,
            max_in_flight_tokens=budget,
        )
        self._runner = PromptRunner(self.manager, budget)
        # Full attention can take an answer's blocks at once: none is freed while it grows.
        self._grows_only = all(group.kind == "full" for group in rules.groups)
        self._donor_group = next(
            (number for number, group in enumerate(rules.groups) if group.kind == "full"), 0
        )
        self.num_evicted_keys = 0

    def request(self, position: int) -> PoolRequest:
        first_key = int(self._namespaces[position]) * self._trace.num_distinct_blocks
        num_prompt_tokens = int(self._trace.num_prompt_tokens[position])
        return PoolRequest(
            number=position,
            keys=(block_ids(self._trace, position) + first_key).tolist(),
            num_prompt_tokens=num_prompt_tokens,
            num_tokens=num_prompt_tokens,
            reads_cache=bool(self._trace.reads_cache[position]),
        )

    def add(self, request: PoolRequest) -> Int32Array:
        """Look a prompt up and compute it; return who stored each hash unit of its hit.

        A prompt that can't fit stays uncomputed, and nobody is its donor.
        """
        if request.num_prompt_tokens == 0:
            return _NO_DONORS
        self.manager.new_step()
        hit = self.manager.look_up(request)
        donors = self._donors_of(hit)
        has_room = self._runner.run(request, hit)
        self._count_evicted()
        if not has_room:
            request.num_computed_tokens = 0
            return _NO_DONORS
        return donors

    def decode(self, request: PoolRequest, num_tokens: int) -> bool:
        """Compute the tokens of an answer; False if the pool had no block for one of them."""
        if num_tokens == 0:
            return True
        step = num_tokens if self._grows_only else 1
        for _ in range(num_tokens // step):
            if not self._runner.extend(request, step):
                # What does fit is stored, token by token, as the engine would have done.
                while step > 1 and self._runner.extend(request, 1):
                    pass
                self._count_evicted()
                return False
        self._count_evicted()
        return True

    def _count_evicted(self) -> None:
        self.num_evicted_keys += len(self.manager.take_evicted())

    def _donors_of(self, hit: Hit) -> Int32Array:
        """Return who stored each hash unit of a hit (int32), from the prompt's start."""
        units = hit.num_tokens // self._rules.hash_block_size
        size = self._rules.groups[self._donor_group].block_size // self._rules.hash_block_size
        donors = np.empty(units, dtype=np.int32)
        stored_by = self.manager.pool.stored_by
        blocks = hit.blocks[self._donor_group]
        donor = -1
        for place in range(blocks_for(units, size) - 1, -1, -1):
            if place < len(blocks) and blocks[place] != NULL_BLOCK:
                donor = stored_by[blocks[place]]
            donors[place * size : (place + 1) * size] = donor
        return donors
