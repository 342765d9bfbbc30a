"""vLLM's synchronous scheduler, step by step: who computes how many tokens, and who has to wait.

Running requests come first, in order of admission; what is left of the step's token budget goes to
the waiting ones, first come, first served, until one of them doesn't fit. A running request that
gets no block pushes out the one admitted last, which starts again from the front of the queue.
Follows Scheduler of vLLM 0.22 and 0.33 without connectors, encoders or draft tokens.

Time is not known here: a step says what it computes, and the caller how long that takes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.pool.vllm.mamba_chunks import MambaChunks
from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.pool.vllm.rules import PoolRules

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """The settings of a server that decide its batches; the names are vLLM's.

    reserves_whole_prompt    admit a request only if its whole prompt fits, not just the first
                             chunk (`scheduler_reserve_full_isl`)
    long_prefill_tokens      the longest chunk (`long_prefill_token_threshold`), 0: no limit
    watermark_blocks         blocks that stay free on admission while others run
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_tokens: int
    reserves_whole_prompt: bool = True
    long_prefill_tokens: int = 0
    watermark_blocks: int = 0

    def __post_init__(self) -> None:
        sizes = (self.max_num_batched_tokens, self.max_num_seqs, self.max_model_tokens)
        if min(sizes) < 1:
            raise ConfigurationError(
                f"max_num_batched_tokens, max_num_seqs, max_model_tokens are {sizes}; "
                "expected 1 or more each"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class ServedRequest(PoolRequest):
    """A request and what became of it. `keys` cover the answer too, which is known beforehand.

    num_answer_tokens     tokens it generates, 1 or more
    num_cached_tokens     hit at its first admission, NEVER before that
    num_hit_tokens        hits of all admissions
    num_scheduled_tokens  tokens computed for it, again after a preemption too
    num_discarded_tokens  tokens whose KV it held when it was preempted
    first_step, finish_step  NEVER until then
    """

    num_answer_tokens: int
    num_cached_tokens: int = NEVER
    num_hit_tokens: int = 0
    num_scheduled_tokens: int = 0
    num_discarded_tokens: int = 0
    num_preemptions: int = 0
    first_step: int = NEVER
    finish_step: int = NEVER


@dataclass(slots=True)
class Step:
    """What one step does: (request, first token computed, number of tokens) in batch order.

    `sampled` are the requests that got a token of their answer.

    `stuck` is the first waiting request if it can't go on although nobody else runs: the pool (or
    the token budget) is too small for it, and the engine would try for ever.
    """

    number: int
    batch: list[tuple[ServedRequest, int, int]] = field(default_factory=list)
    preempted: list[ServedRequest] = field(default_factory=list)
    sampled: list[ServedRequest] = field(default_factory=list)
    finished: list[ServedRequest] = field(default_factory=list)
    stuck: ServedRequest | None = None

    @property
    def num_tokens(self) -> int:
        return sum(num_tokens for _, _, num_tokens in self.batch)


class Scheduler:
    """Serves requests from a pool of `num_blocks` blocks including the null block."""

    def __init__(self, pool_rules: PoolRules, num_blocks: int, rules: SchedulerRules) -> None:
        self.rules = rules
        self.manager = PoolManager(
            pool_rules,
            num_blocks,
            max_model_tokens=rules.max_model_tokens,
            max_in_flight_tokens=rules.max_num_batched_tokens,
        )
        self.waiting: deque[ServedRequest] = deque()
        self.running: list[ServedRequest] = []
        self.num_steps = 0
        self._refused: ServedRequest | None = None
        self._chunks = MambaChunks.of(pool_rules, self._longest_chunk())

    def _longest_chunk(self) -> int:
        limit = self.rules.long_prefill_tokens
        budget = self.rules.max_num_batched_tokens
        return min(budget, limit) if limit > 0 else budget

    def add(self, request: ServedRequest) -> None:
        """Queue a request behind all others. Raises UsageError if its context is too long."""
        if request.num_prompt_tokens >= self.rules.max_model_tokens:
            raise UsageError(
                f"a prompt has {request.num_prompt_tokens} tokens; with its answer the longest "
                f"context is {self.rules.max_model_tokens}"
            )
        self.waiting.append(request)

    def withdraw_first(self) -> ServedRequest:
        """Take the first waiting request out, for one that is stuck."""
        return self.waiting.popleft()

    def step(self) -> Step:
        """Schedule one step, compute it, and free what has finished."""
        step = Step(number=self.num_steps)
        self.num_steps += 1
        self._refused = None
        self.manager.new_step()
        budget = self._schedule_running(step)
        if not step.preempted:
            self._admit(step, budget)
        self.manager.finish_copies()
        if not step.batch and not self.running and self.waiting:
            step.stuck = self.waiting[0]
        for request, _, num_tokens in step.batch:
            request.num_computed_tokens += num_tokens
            request.num_scheduled_tokens += num_tokens
        for request, _, _ in step.batch:
            self._sample(request, step)
        if step.finished:
            # Their blocks are free now, so who was refused may fit.
            self._refused = None
            done = set(map(id, step.finished))
            self.running = [request for request in self.running if id(request) not in done]
        return step

    # Steps in which nothing happens

    def quiet_steps(self) -> int:
        """Return for how many steps every running request just gets its next token.

        Nobody is admitted, finished or preempted in them, and no block changes hands, so that
        `skip` can do them at once. It holds until somebody is added; 0 says nothing.
        """
        if not self.running or not self.manager.changes_at_block_ends_only:
            return 0
        num_running = len(self.running)
        budget = self.rules.max_num_batched_tokens
        if num_running > budget or not (
            not self.waiting
            or self.waiting[0] is self._refused
            or num_running in (self.rules.max_num_seqs, budget)
        ):
            return 0
        unit = self.manager.rules.hash_block_size
        longest = self.rules.max_model_tokens
        quiet = longest
        for request in self.running:
            num_tokens, computed = request.num_tokens, request.num_computed_tokens
            in_block = computed % unit
            if num_tokens - computed != 1 or in_block == 0:
                return 0
            last = min(request.num_prompt_tokens + request.num_answer_tokens, longest)
            quiet = min(quiet, unit - 1 - in_block, last - num_tokens - 1)
        return max(quiet, 0)

    def skip(self, num_steps: int) -> None:
        """Do `num_steps` quiet steps, at most `quiet_steps()` of them."""
        for request in self.running:
            request.num_tokens += num_steps
            request.num_computed_tokens += num_steps
            request.num_scheduled_tokens += num_steps
        self.num_steps += num_steps

    # Scheduling

    def _schedule_running(self, step: Step) -> int:
        """Give the running requests their tokens; return what is left of the budget."""
        budget = self.rules.max_num_batched_tokens
        place = 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            computed = request.num_computed_tokens
            num_tokens = min(
                self._within_chunk(request.num_tokens - computed),
                budget,
                self.rules.max_model_tokens - 1 - computed,
            )
            if self._chunks is not None:
                num_tokens = self._chunks.cut(request, computed, num_tokens)
            if num_tokens <= 0:
                place += 1
                continue
            if not self._make_room(request, num_tokens, step):
                break
            step.batch.append((request, computed, num_tokens))
            budget -= num_tokens
            place += 1
        return budget

    def _make_room(self, request: ServedRequest, num_tokens: int, step: Step) -> bool:
        """Allocate for a running request, preempting from the end; False if it had to go itself."""
        while not self.manager.allocate(request, num_tokens):
            victim = self.running.pop()
            self._preempt(victim)
            step.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: ServedRequest) -> None:
        self.manager.free(request)
        request.num_discarded_tokens += request.num_computed_tokens
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.rules.max_num_seqs:
            request = self.waiting[0]
            hit = self.manager.look_up(request)
            computed = hit.num_tokens
            num_tokens = min(self._within_chunk(request.num_tokens - computed), budget)
            if self._chunks is not None:
                num_tokens = self._chunks.cut(request, computed, num_tokens, is_admission=True)
            if num_tokens == 0 or not self.manager.allocate(
                request,
                num_tokens,
                hit=hit,
                whole_must_fit=self.rules.reserves_whole_prompt,
                watermark_blocks=self.rules.watermark_blocks if self.running else 0,
            ):
                self._refused = request
                break
            self.waiting.popleft()
            self.running.append(request)
            request.num_computed_tokens = computed
            request.num_hit_tokens += computed
            if request.first_step == NEVER:
                request.first_step = step.number
                request.num_cached_tokens = computed
            step.batch.append((request, computed, num_tokens))
            budget -= num_tokens

    def _within_chunk(self, num_tokens: int) -> int:
        limit = self.rules.long_prefill_tokens
        return min(num_tokens, limit) if limit > 0 else num_tokens

    def _sample(self, request: ServedRequest, step: Step) -> None:
        """Add one token to a request all of whose tokens are computed; free it after its last."""
        if request.num_computed_tokens < request.num_tokens:
            return
        request.num_tokens += 1
        step.sampled.append(request)
        num_answer_tokens = request.num_tokens - request.num_prompt_tokens
        if (
            num_answer_tokens >= request.num_answer_tokens
            or request.num_tokens >= self.rules.max_model_tokens
        ):
            request.finish_step = step.number
            self.manager.free(request)
            step.finished.append(request)
