"""What every sweep needs of a log: its trace under the engine's key, hits at a size, a server."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefixaudit.analysis.simulating import lookups_at
from prefixaudit.audit.keys import content_of, isolation_of
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.model import ModelSpec
from prefixaudit.core.pool import HitCurve
from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array
from prefixaudit.cost.blocks import vllm_layout
from prefixaudit.plan.coarser import in_blocks_of
from prefixaudit.plan.options import PlanOptions
from prefixaudit.plan.serving import Server
from prefixaudit.plan.timing import StepRange, measured_steps, model_steps
from prefixaudit.pool.separate import numbered, separated
from prefixaudit.pool.vllm.rules import (
    GroupRules,
    PoolRules,
    pool_rules,
    release_rules,
    release_rules_of,
)
from prefixaudit.pool.vllm.scheduler import SchedulerRules
from prefixaudit.pool.vllm.sequential import replay_sequential

if TYPE_CHECKING:
    from prefixaudit.plan.hardware import Hardware

# Without an engine a prompt's tail queues with the other blocks (see `analysis.simulating`). In
# time it does the same, or the two figures differ by the rule and not by time: vLLM up to 0.23.
RELEASE_WITHOUT_ENGINE: Final = "0.23.0"
_NEWEST_VLLM: Final = "0.33.0"
_GROUP_KINDS: Final = {
    "full": "full",
    "window": "swa",
    "chunk": "chunked-local",
    "state": "mamba",
}
# Groups are simulated in Python, block by block: about a minute at these sizes.
_MOST_GROUP_BLOCKS: Final = 3_000_000
_MOST_GROUP_TOKENS: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """A log in blocks of one size, and the engine that it is planned for.

    namespaces       int32 [requests]  by the engine's key
    safe_namespaces  the same refined by the complete identity
    own, safe        the trace with blocks of each namespace apart (its blocks have no labels)
    groups           vLLM's KV groups where the model has several; empty: one full attention group
    """

    trace: BlockTrace
    namespaces: Int32Array
    safe_namespaces: Int32Array
    own: BlockTrace
    safe: BlockTrace
    engine: EngineProfile | None
    policy: str | None
    spec: ModelSpec | None
    options: PlanOptions
    num_answer_tokens: Int64Array
    max_model_len: int | None
    groups: tuple[GroupRules, ...]

    @classmethod
    def of(
        cls,
        trace: BlockTrace,
        fields: tuple[str, ...],
        *,
        engine: EngineProfile | None,
        policy: str | None,
        spec: ModelSpec | None,
        options: PlanOptions,
        num_answer_tokens: Int64Array,
        max_model_len: int | None,
    ) -> Basis:
        namespaces = trace.namespaces(fields)
        complete = number_forms((content_of(i), isolation_of(i)) for i in trace.identities)
        safe = numbered(namespaces, complete[trace.identity]).astype(np.int32)
        is_same = int(safe.max(initial=0)) == int(namespaces.max(initial=0))
        own = _apart(trace, namespaces)
        return cls(
            trace=trace,
            namespaces=namespaces,
            safe_namespaces=safe,
            own=own,
            safe=own if is_same else _apart(trace, safe),
            engine=engine,
            policy=policy,
            spec=spec,
            options=options,
            num_answer_tokens=num_answer_tokens,
            max_model_len=max_model_len,
            groups=() if spec is None else groups_of(spec),
        )

    def in_blocks_of(self, block_size: int) -> Basis:
        """Return the same log in larger blocks. Raises UsageError for what is no multiple."""
        return replace(
            self,
            trace=in_blocks_of(self.trace, block_size),
            own=in_blocks_of(self.own, block_size),
            safe=in_blocks_of(self.safe, block_size),
        )

    @property
    def num_prompt_tokens(self) -> int:
        return int(self.trace.num_prompt_tokens.sum())

    @property
    def min_recomputed_tokens(self) -> int:
        return 1 if self.engine is None else self.engine.min_recomputed_tokens

    @property
    def order(self) -> Int64Array:
        return self.trace.replay_order()

    def cached_tokens(
        self,
        capacity_blocks: int | None,
        trace: BlockTrace | None = None,
        *,
        policy: str | None = None,
    ) -> Int64Array:
        """Return the cached tokens of each request, one after another, in the engine's own pool."""
        if capacity_blocks is not None and self.is_vllm and self.groups and not self._why_no_groups:
            return replay_sequential(
                self.own if trace is None else trace,
                np.zeros(self.trace.num_requests, dtype=np.int32),
                capacity_blocks=capacity_blocks,
                rules=self.rules,
                max_num_batched_tokens=self.options.max_num_batched_tokens,
            ).lookups.num_cached_tokens
        return lookups_at(
            self.own if trace is None else trace,
            engine=self.engine,
            policy=policy or self.policy,
            capacity_blocks=capacity_blocks,
        ).num_cached_tokens

    def safe_cached_tokens(self, capacity_blocks: int | None) -> Int64Array | None:
        """Return what would be hit under the complete key; None where no identity is known."""
        if not any(
            isinstance(getattr(identity, name), str)
            for identity in self.trace.identities
            for name in ("tenant", "trust_domain", "user", "cache_salt", "lora_name")
        ):
            return None
        if self.safe is self.own:
            return self.cached_tokens(capacity_blocks)
        return self.cached_tokens(capacity_blocks, self.safe)

    def rate(self, cached_tokens: Int64Array) -> float | None:
        """Return a token hit rate; None for a log without tokens."""
        total = self.num_prompt_tokens
        return int(cached_tokens.sum()) / total if total else None

    def flops_share(self, cached_tokens: Int64Array) -> float | None:
        """Return the share of the prefill FLOPs that hits spare; None without a model."""
        if self.spec is None or not self.num_prompt_tokens:
            return None
        from prefixaudit.analysis.figures import prefill_per_request
        from prefixaudit.cost.flops import saved_flops

        total = float(prefill_per_request(self.spec, self.trace.num_prompt_tokens).sum())
        return float(saved_flops(self.spec, cached_tokens).sum()) / total if total else None

    # Time

    @property
    def why_no_time(self) -> str | None:
        """Say why the log can't be served in time, None where it can."""
        trace = self.trace
        if not trace.num_requests:
            return "the log has no request"
        if np.isnan(trace.arrival_s).any():
            return "a request has no arrival time"
        if (trace.num_prompt_tokens < 1).any():
            return "a prompt is empty"
        if self.engine is not None and not self.is_vllm:
            return f"{self.engine.name}'s scheduler isn't modelled in time"
        return self._why_no_groups

    @property
    def is_vllm(self) -> bool:
        return self.engine is not None and self.engine.name == "vllm"

    @property
    def _why_no_groups(self) -> str | None:
        """Say why the model's groups can't be simulated, None where they can or it has one."""
        if not self.groups:
            return None
        unit = math.gcd(*(group.block_size for group in self.groups))
        if unit != self.trace.block_size:
            return (
                f"layers with windows or states: their blocks are of {unit:,} tokens, the log's of "
                f"{self.trace.block_size:,}"
            )
        lengths = self.trace.num_prompt_tokens + self.num_answer_tokens
        work = int((lengths // unit).sum()) * len(self.groups)
        if work > _MOST_GROUP_BLOCKS or int(self.num_answer_tokens.sum()) > _MOST_GROUP_TOKENS:
            return "layers with windows or states: the log is too long to simulate their groups"
        return None

    def server(self, steps: StepRange) -> Server:
        """Return what serves the log at the load that is asked for."""
        trace, options = self.trace, self.options
        first = trace.arrival_s.min()
        return Server(
            trace=trace,
            namespaces=self.namespaces,
            rules=self.rules,
            scheduler=self.scheduler,
            steps=steps,
            arrival_s=first + (trace.arrival_s - first) / options.load,
            num_answer_tokens=self.num_answer_tokens,
        )

    @property
    def longest_context_tokens(self) -> int:
        longest = int((self.trace.num_prompt_tokens + self.num_answer_tokens).max(initial=1)) + 1
        longest_prompt = int(self.trace.num_prompt_tokens.max(initial=1)) + 1
        if self.max_model_len is None:
            return longest
        return max(min(longest, self.max_model_len), longest_prompt)

    @property
    def rules(self) -> PoolRules:
        if self.engine is None:
            release = release_rules(RELEASE_WITHOUT_ENGINE)
        elif self.is_vllm:
            release = release_rules_of(self.engine)
        else:
            release = release_rules(_NEWEST_VLLM)
        one = (GroupRules(kind="full", block_size=self.trace.block_size),)
        return pool_rules(release, self.groups or one)

    @property
    def scheduler(self) -> SchedulerRules:
        return SchedulerRules(
            max_num_batched_tokens=self.options.max_num_batched_tokens,
            max_num_seqs=self.options.max_num_seqs,
            max_model_tokens=self.longest_context_tokens,
        )

    def steps(self, hardware: Hardware | None) -> StepRange | None:
        """Return the seconds of steps, measured or on a GPU; None where neither is given."""
        sizes: dict[str, Any] = {
            "max_model_tokens": self.longest_context_tokens,
            "max_tokens": self.options.max_num_batched_tokens,
        }
        if self.options.measured is not None:
            return measured_steps(self.options.measured, **sizes)
        return None if hardware is None else model_steps(hardware.model, **sizes)


def number_forms(forms: Iterable[object]) -> Int64Array:
    """Number values in order of first appearance (int64, from 0)."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(form, len(numbers)) for form in forms], dtype=np.int64)


def _apart(trace: BlockTrace, namespaces: Int32Array) -> BlockTrace:
    nodes = np.zeros(len(trace.tree.parent), dtype=np.int64)
    return separated(trace, nodes, [numbered(namespaces)])[0] if len(namespaces) else trace


def groups_of(spec: ModelSpec) -> tuple[GroupRules, ...]:
    """Return a model's KV groups as vLLM makes them; none where it has one of full attention."""
    layout = vllm_layout(spec)
    if layout.num_groups == 1 and layout.groups[0].kind == "full":
        return ()
    return tuple(
        GroupRules(
            kind=_GROUP_KINDS[group.kind], block_size=group.block_size, window_tokens=group.span
        )
        for group in layout.groups
        for _ in range(group.num_groups)
    )


def curve_rates(curve: HitCurve, block_size: int, num_prompt_tokens: int) -> np.ndarray:
    """Return the token hit rate at every capacity (float64 [capacities])."""
    return curve.num_cached_blocks * (block_size / max(num_prompt_tokens, 1))
