"""What is asked of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from prefixaudit.cost.time import MeasuredPrefill
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.plan.policies import POLICY_TITLES
from prefixaudit.plan.routing import ROUTINGS
from prefixaudit.plan.timing import MeasuredEngine
from prefixaudit.pool.eviction import POLICIES

TierWrites: TypeAlias = Literal["through", "on-eviction"]

DEFAULT_BATCHED_TOKENS: Final = 8192
DEFAULT_NUM_SEQS: Final = 256


_USUAL_ROUTINGS: Final = ("round-robin", "session", "consistent-hash", "dynamo")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChoice:
    """A GPU by name and how many of them one replica takes."""

    name: str
    tensor_parallel: int = 1

    def __str__(self) -> str:
        count = "" if self.tensor_parallel == 1 else f"{self.tensor_parallel} x "
        return f"{count}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierChoice:
    """A tier by name and its room for one replica: GiB of KV, or blocks."""

    name: str
    gib: float | None = None
    num_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The sweeps and the settings of the simulation; empty sweeps aren't run.

    gpus          the first one is the hardware of all other sweeps
    measured      what was measured of the engine, in place of the cost model
    answer_tokens of requests whose answer's length the log doesn't have; None: the mean of the
                  others, 128 without any
    usd_per_gpu_hour, ttft_p95_s  None: not given
    max_num_batched_tokens, max_num_seqs  of the server (vLLM's names)
    """

    capacities_blocks: tuple[int, ...] = ()
    block_sizes: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    gpus: tuple[GpuChoice, ...] = ()
    kv_cache_dtypes: tuple[str, ...] = ()
    tiers: tuple[TierChoice, ...] = ()
    tier_writes: TierWrites = "through"
    promotes: bool = True
    replicas: tuple[int, ...] = ()
    routings: tuple[str, ...] = ()
    has_isolation: bool = False
    load: float = 1.0
    answer_tokens: int | None = None
    ttft_p95_s: float | None = None
    usd_per_gpu_hour: float | None = None
    measured: MeasuredEngine | None = None
    measured_prefill: MeasuredPrefill | None = None
    efficiency: tuple[float, float] | None = None
    max_num_batched_tokens: int = DEFAULT_BATCHED_TOKENS
    max_num_seqs: int = DEFAULT_NUM_SEQS
    sample: float | None = None
    jobs: int = 1

    @property
    def compared_routings(self) -> tuple[str, ...]:
        """Return the routings that the numbers of replicas are compared under; () without any."""
        return (self.routings or _USUAL_ROUTINGS) if self.replicas else ()

    def __post_init__(self) -> None:
        if not self.load > 0:
            raise UsageError(f"a load of {self.load:g}; expected more than 0")
        if any(number < 1 for number in self.replicas):
            raise UsageError("a number of replicas is 1 or more")
        for kind, names, known in (
            ("routing", self.routings, ROUTINGS),
            ("policy to plan with", self.policies, {*POLICY_TITLES, *POLICIES.names}),
        ):
            for name in names:
                if name not in known:
                    raise UsageError(unknown_name(kind, name, known))
        if self.measured is not None and self.gpus[1:]:
            raise UsageError("--throughput was measured on one GPU; several --gpus have no figures")
