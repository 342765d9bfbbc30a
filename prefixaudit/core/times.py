"""What hits are worth in seconds and money, as ranges; what several samples of a prompt cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePercentiles:
    """Ranges (low, high) in seconds over the requests of a log."""

    p50_s: tuple[float, float]
    p90_s: tuple[float, float]
    p99_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTimes:
    """What the hits of a log are worth. Ranges are (low, high) from the same assumptions.

    gpu_s_prefill     GPU seconds of all prompts at saturation if nothing were cached
    gpu_s_saved       of these, what the hits spare
    usd_saved         gpu_s_saved at the given price, None without one
    ttft_cold, ttft_hit  each request alone, without and with its hit; queueing left out. None for
                      a log without requests
    num_hits          requests with one cached token or more
    num_hits_too_short  of these, the ones that save no time for a lone request even at best
    num_hits_doubtful   of these, the ones that save time at best but not at worst
    """

    gpu_s_prefill: tuple[float, float]
    gpu_s_saved: tuple[float, float]
    usd_saved: tuple[float, float] | None
    ttft_cold: TimePercentiles | None
    ttft_hit: TimePercentiles | None
    num_hits: int
    num_hits_too_short: int
    num_hits_doubtful: int
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFacts:
    """Times of a log on one kind of GPU, and the pool whose hits they are of.

    is_endless_pool  the hits are those of a pool without limit: no size is known
    """

    gpu: str
    tensor_parallel: int
    usd_per_gpu_hour: float | None
    is_endless_pool: bool
    times: LogTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRow:
    """Requests that ask for `num_samples` answers; blocks and tokens of all of them together."""

    num_samples: int
    num_requests: int
    num_shared_blocks: int
    num_private_copies: int
    num_recomputed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFacts:
    """What requests of several samples (n > 1) hold and compute before any has answered.

    Each sample is a request of its own. A full block of the prompt that a lookup can hit is held
    once for all of them; the rest of the prompt each has for itself.

    num_shared_blocks      blocks that all samples of a request hold, over the requests
    num_private_copies     blocks that the second and later samples hold beside the first's
    num_recomputed_tokens  prompt tokens that the second and later samples compute again
    num_blocks_spared      blocks that would be held without sharing, beyond those that are
    block_bytes            of one block, None without a model
    rows                   the same by number of samples, ascending
    """

    num_requests: int
    num_samples: int
    num_shared_blocks: int
    num_private_copies: int
    num_recomputed_tokens: int
    num_blocks_spared: int
    block_bytes: int | None
    rows: tuple[ForkRow, ...]
