"""The sweeps of a plan: each returns rows, whose figures don't depend on the number of jobs.

The sweep of tiers is in `tiering.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from prefixaudit.core.trace import Int64Array
from prefixaudit.cost.savings import lookup_s
from prefixaudit.errors import ConfigurationError, UsageError, unknown_name
from prefixaudit.plan.basis import Basis
from prefixaudit.plan.hardware import Hardware, block_bytes, hardware_of
from prefixaudit.plan.options import GpuChoice
from prefixaudit.plan.policies import POLICY_TITLES, hits_by_policy
from prefixaudit.plan.recommend import MOST_REPLICAS
from prefixaudit.plan.report import Option, Sweep, TimedFigures
from prefixaudit.plan.routing import NEEDS_TIME, replicas_of, requests_of
from prefixaudit.plan.serving import Server, percentile
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.vllm.timed import Replicas, StepSeconds, Tiers

if TYPE_CHECKING:
    from prefixaudit.deployment import Deployment

Item = TypeVar("Item")
Result = TypeVar("Result")

SEQUENTIAL: Final = "one request after another in the engine's own pool"
TIMED: Final = "timed: vLLM's scheduler, arrivals of the log, answers' lengths as stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Runs sweeps over one log on one deployment.

    `fine` is the same log in the blocks that it was read in. `hardware` is that of the rows of all
    sweeps but the one of hardware; None: time isn't known from a GPU. `capacity_blocks` is this
    pool's.
    """

    basis: Basis
    fine: Basis
    deployment: Deployment
    hardware: Hardware | None
    capacity_blocks: int

    @property
    def most_blocks(self) -> int | None:
        """Return the most blocks that may fit on one replica's GPUs; None without a GPU."""
        if self.hardware is None:
            return None
        return self.hardware.capacity_blocks(self.basis.trace.block_size)[1]

    # Rows

    def rows(self, items: Iterable[Item], make: Callable[[Item], Result]) -> list[Result]:
        """Return a row an item, in their order; several at a time (the loops release the lock)."""
        jobs = self.basis.options.jobs
        todo = list(items)
        if jobs == 1 or len(todo) < 2:
            return [make(item) for item in todo]
        # The first one compiles the loops, or each thread would wait for it.
        first = make(todo[0])
        with ThreadPoolExecutor(jobs) as executor:
            return [first, *executor.map(make, todo[1:])]

    def option(
        self,
        sweep: Sweep,
        label: str,
        *,
        basis: Basis | None = None,
        hardware: Hardware | None = None,
        capacity_blocks: int | None,
        cached: Int64Array | None = None,
        num_replicas: int = 1,
        timed: TimedFigures | None = None,
        is_sized: bool = False,
        with_safe: bool = True,
        sequential_basis: str = SEQUENTIAL,
        note: str = "",
    ) -> Option:
        """Return a row; `is_sized` asks for the replicas that the TTFT target needs."""
        basis = basis or self.basis
        hardware = hardware or self.hardware
        if cached is None:
            cached = basis.cached_tokens(capacity_blocks)
        safe = basis.safe_cached_tokens(capacity_blocks) if with_safe else None
        needed: tuple[int, int] | None = None
        if is_sized and timed is not None and capacity_blocks is not None:
            needed = self.replicas_for_target(basis, hardware, capacity_blocks)
            if needed is None and basis.options.ttft_p95_s is not None and not basis.groups:
                note = _joined(note, f"up to {MOST_REPLICAS} replicas don't meet the target")
        gpus = None
        ranks = 1 if hardware is None else hardware.choice.tensor_parallel
        if needed is not None:
            gpus = (needed[0] * ranks, needed[1] * ranks)
        price = basis.options.usd_per_gpu_hour
        usd = (
            None if gpus is None or price is None else (gpus[0] * price * 24, gpus[1] * price * 24)
        )
        dtype = "auto" if hardware is None else hardware.kv_cache_dtype
        size = block_bytes(basis.spec, dtype, basis.trace.block_size)
        return Option(
            sweep=sweep,
            label=label,
            block_size=basis.trace.block_size,
            capacity_blocks=capacity_blocks,
            capacity_bytes=None
            if size is None or capacity_blocks is None
            else size * capacity_blocks,
            num_replicas=num_replicas,
            token_hit_rate=basis.rate(cached),
            safe_token_hit_rate=None if safe is None else basis.rate(safe),
            flops_saved_share=basis.flops_share(cached),
            timed=timed,
            replicas_needed=needed,
            gpus_needed=gpus,
            usd_per_day=usd,
            basis=sequential_basis if timed is None else f"{sequential_basis}; {TIMED}",
            note=note,
        )

    def serve(
        self,
        basis: Basis,
        hardware: Hardware | None,
        capacity_blocks: int | None,
        *,
        replicas: Replicas | None = None,
        tiers: tuple[Tiers, Tiers] | None = None,
    ) -> TimedFigures | None:
        """Return the timed figures of one setup; None where time isn't known."""
        server = self.server(basis, hardware)
        if server is None or capacity_blocks is None:
            return None
        if basis.groups and replicas is not None and replicas.num_replicas > 1:
            return None
        runs = server.runs(
            enough_blocks(basis, capacity_blocks),
            replicas=replicas or Replicas(),
            tiers=tiers or (Tiers(), Tiers()),
        )
        return server.figures(runs)

    def server(self, basis: Basis, hardware: Hardware | None) -> Server | None:
        if basis.why_no_time is not None:
            return None
        steps = basis.steps(hardware)
        return None if steps is None else basis.server(steps)

    def replicas_for_target(
        self, basis: Basis, hardware: Hardware | None, capacity_blocks: int
    ) -> tuple[int, int] | None:
        """Return the fewest replicas that meet the TTFT target, at best and at worst.

        Requests are routed as Dynamo's KV router does. Found by doubling and bisection: more
        replicas are taken to be no slower. None: no target, or 64 replicas don't meet it.
        """
        target = basis.options.ttft_p95_s
        server = self.server(basis, hardware)
        if target is None or server is None or basis.groups:
            return None
        ends = server.steps.ends
        found = []
        for end in range(len(ends)):
            number = self._fewest(server, ends[end], end, basis, capacity_blocks, target)
            if number is None:
                return None
            found.append(number)
        return min(found), max(found)

    def _fewest(
        self,
        server: Server,
        seconds: StepSeconds,
        end: int,
        basis: Basis,
        capacity_blocks: int,
        target_s: float,
    ) -> int | None:
        lookup = lookup_s(basis.trace.num_prompt_tokens, block_size=basis.trace.block_size)
        found_s = lookup.lo if end == 0 else lookup.hi

        def is_met(number: int) -> bool:
            [run] = server.runs(
                enough_blocks(basis, capacity_blocks),
                replicas=replicas_of(basis.trace, "dynamo", number),
                ends=(seconds,),
            )
            served = ~run.refused
            ttft = (run.first_token_s - server.arrival_s + found_s)[served]
            return bool(len(ttft)) and percentile(ttft, 95) <= target_s

        high = 1
        while not is_met(high):
            high *= 2
            if high > MOST_REPLICAS:
                return None
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_met(middle) else (middle, high)
        return high

    # Sweeps

    def capacities(self, capacities_blocks: Sequence[int]) -> list[Option]:
        def row(capacity: int) -> Option:
            timed = self.serve(self.basis, self.hardware, capacity)
            mark = " (this pool)" if capacity == self.capacity_blocks else ""
            most = self.most_blocks
            is_possible = most is None or capacity <= most
            return self.option(
                "capacity",
                f"{capacity:,} blocks{mark}",
                capacity_blocks=capacity,
                timed=timed,
                is_sized=is_possible,
                note="" if is_possible else f"more than the {most:,} blocks that fit there",
            )

        return self.rows(capacities_blocks, row)

    def block_sizes(self, sizes: Sequence[int]) -> list[Option]:
        """Return rows of pools of equal tokens in blocks of other sizes."""
        tokens = self.capacity_blocks * self.basis.trace.block_size

        def row(size: int) -> Option:
            basis = self.fine.in_blocks_of(size)
            return self.option(
                "block-size",
                f"{size:,} tokens a block",
                basis=basis,
                capacity_blocks=tokens // size,
                timed=self.serve(basis, self.hardware, tokens // size),
            )

        return self.rows(sizes, row)

    def policies(self, names: Sequence[str]) -> list[Option]:
        basis = self.basis

        def row(name: str) -> Option:
            if name == "engine":
                return self.option(
                    "policy",
                    "the engine's own",
                    capacity_blocks=self.capacity_blocks,
                    with_safe=False,
                )
            facts = None if basis.engine is None else basis.engine.pool
            if facts is not None and name in facts.policies and name != "belady":
                return self.option(
                    "policy",
                    f"{name}: {POLICIES[name].title}",
                    capacity_blocks=self.capacity_blocks,
                    cached=basis.cached_tokens(self.capacity_blocks, policy=name),
                    with_safe=False,
                )
            if name not in POLICY_TITLES:
                raise UsageError(unknown_name("policy to plan with", name, POLICY_TITLES))
            [hits] = hits_by_policy(
                basis.own,
                np.zeros(basis.own.num_requests, dtype=np.int32),
                policies=[name],
                capacities_blocks=[self.capacity_blocks],
                min_recomputed_tokens=basis.min_recomputed_tokens,
            )
            return self.option(
                "policy",
                f"{name}: {POLICY_TITLES[name]}",
                capacity_blocks=self.capacity_blocks,
                cached=hits.num_hit_blocks * basis.trace.block_size,
                with_safe=False,
                sequential_basis="one request after another, full blocks only, leaves go first",
            )

        return self.rows(("engine", *names), row)

    def hardware_choices(self) -> list[Option]:
        """Return rows for each GPU and each KV type: its own pool (the smaller end) and speed."""
        options, spec = self.basis.options, self.basis.spec
        if spec is None:
            raise UsageError("GPUs and KV types need a model", hint="give its folder with --model")
        dtypes: tuple[str | None, ...] = options.kv_cache_dtypes or (None,)
        choices = [(choice, dtype) for choice in options.gpus for dtype in dtypes]

        def row(pair: tuple[GpuChoice, str | None]) -> Option:
            choice, dtype = pair
            try:
                found = hardware_of(spec, self.deployment, options, choice, kv_cache_dtype=dtype)
            except ConfigurationError as error:
                return self._impossible(f"{choice}, {dtype or 'auto'} KV", str(error))
            low, high = found.capacity_blocks(self.basis.trace.block_size)
            timed = self.serve(self.basis, found, low)
            return self.option(
                "hardware",
                found.title,
                hardware=found,
                capacity_blocks=low,
                timed=timed,
                is_sized=True,
                note=f"pool estimated at {low:,} to {high:,} blocks; the smaller one counts",
            )

        return self.rows(choices, row)

    def _impossible(self, label: str, reason: str) -> Option:
        return Option(
            sweep="hardware",
            label=label,
            block_size=self.basis.trace.block_size,
            capacity_blocks=None,
            capacity_bytes=None,
            num_replicas=1,
            token_hit_rate=None,
            safe_token_hit_rate=None,
            flops_saved_share=None,
            timed=None,
            replicas_needed=None,
            gpus_needed=None,
            usd_per_day=None,
            basis="the pool's size by the engine's rule",
            note=reason,
        )

    def replicas(self) -> list[Option]:
        """Return rows for each number of replicas and routing, each replica with this pool."""
        options, basis = self.basis.options, self.basis
        routings = options.compared_routings
        has_time = self.server(basis, self.hardware) is not None
        pairs = [(number, routing) for number in options.replicas for routing in routings]
        if not (basis.trace.session >= 0).any():
            pairs = [pair for pair in pairs if pair[1] != "session"]
        if not has_time:
            pairs = [pair for pair in pairs if pair[1] not in NEEDS_TIME]

        def row(pair: tuple[int, str]) -> Option:
            number, routing = pair
            replicas = replicas_of(basis.trace, routing, number)
            timed = self.serve(basis, self.hardware, self.capacity_blocks, replicas=replicas)
            cached = self._cached_of_replicas(replicas)
            option = self.option(
                "replicas",
                f"{number} x {routing}",
                capacity_blocks=self.capacity_blocks,
                num_replicas=number,
                cached=cached,
                timed=timed,
                with_safe=False,
                sequential_basis="one request after another, each replica's pool for itself",
            )
            if routing in NEEDS_TIME:
                # It decides by the pools of the moment: there is no sequential figure.
                return replace(option, token_hit_rate=None, flops_saved_share=None, basis=TIMED)
            return option

        return self.rows(pairs, row)

    def _cached_of_replicas(self, replicas: Replicas) -> Int64Array:
        basis = self.basis
        cached = np.zeros(basis.trace.num_requests, dtype=np.int64)
        if replicas.replica_of is None:
            return cached
        for positions in requests_of(replicas.replica_of, replicas.num_replicas):
            if len(positions):
                part = basis.own.of_requests(positions)
                cached[positions] = basis.cached_tokens(self.capacity_blocks, part)
        return cached


def enough_blocks(basis: Basis, capacity_blocks: int) -> int:
    """Return a capacity that is no larger than what could ever be used: memory is taken for it."""
    blocks = -(-(basis.trace.num_prompt_tokens + basis.num_answer_tokens) // basis.trace.block_size)
    return min(capacity_blocks, (int(blocks.sum()) + 1) * max(len(basis.groups), 1))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
