"""What a hit saves in seconds: prefill without it, less prefill with it, lookup and fetch.

Every prompt pays the lookup (its blocks are hashed whether they hit or not), so it counts in both
times to first token; a fetch from a slower tier is paid by the hit alone. A hit saves
nothing where reading the weights, not computing, takes the time, or where the fetch takes longer
than the tokens would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prefixaudit.cost.flops import saved_flops
from prefixaudit.cost.hardware import Tier
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.time import Seconds, TimeModel

# Chained SHA-256 of blocks of 16 to 32 tokens: 0.14 to 0.3 us a token; of 256 tokens 0.06 us.
_LOOKUP_S_PER_TOKEN: Final = (0.14e-6, 0.3e-6)
_LARGE_BLOCK: Final = 256
_LARGE_LOOKUP_S_PER_TOKEN: Final = (0.05e-6, 0.07e-6)

# Tokenizing, HTTP and scheduling a request; BLIS fits 15.6 ms for one server.
_REQUEST_S: Final = (0.0, 0.016)

_LONGEST_BREAK_EVEN: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HitTimes:
    """Ranges of seconds, one element a request: [requests] float64.

    `ttft_cold` and `ttft_hit` leave queueing out. `saved` is their difference, negative where a hit
    costs more than it saves.
    """

    lookup: Seconds
    fetch: Seconds
    ttft_cold: Seconds
    ttft_hit: Seconds
    saved: Seconds

    @property
    def num_too_short(self) -> int:
        """Count hits that save no time even at best."""
        return int(np.count_nonzero(self.saved.hi <= 0))


def hit_times(
    model: TimeModel,
    num_prompt_tokens: NDArray[np.integer],
    num_cached_tokens: NDArray[np.integer],
    *,
    tier: Tier | None = None,
    block_size: int = 16,
) -> HitTimes:
    """Return the times of requests, each alone: int64 [requests] in, float64 [requests] out.

    At least one token of each prompt is computed. `tier` None: the hit's blocks are in the GPU.
    Only requests that hit belong here; a cached length of 0 saves nothing and counts as too short.
    """
    prompt = np.atleast_1d(np.asarray(num_prompt_tokens)).astype(np.int64)
    cached = np.minimum(np.atleast_1d(np.asarray(num_cached_tokens)).astype(np.int64), prompt - 1)
    lookup = lookup_s(prompt, block_size=block_size)
    request = Seconds(
        lo=np.full(prompt.shape, _REQUEST_S[0]), hi=np.full(prompt.shape, _REQUEST_S[1])
    )
    fetch = (
        Seconds(lo=np.zeros(prompt.shape), hi=np.zeros(prompt.shape))
        if tier is None
        else fetch_s(model, cached, tier)
    )
    cold = model.prefill_s(prompt, np.zeros_like(prompt))
    warm = model.prefill_s(prompt - cached, cached)
    ttft_cold = request + lookup + cold
    ttft_hit = request + lookup + warm + fetch
    return HitTimes(
        lookup=lookup,
        fetch=fetch,
        ttft_cold=ttft_cold,
        ttft_hit=ttft_hit,
        saved=_saved(cold, warm, fetch),
    )


def _saved(cold: Seconds, warm: Seconds, fetch: Seconds) -> Seconds:
    """Return the range of what is saved: compute corner by corner, the fetch at its own ends."""
    computed = cold - warm
    return Seconds(lo=computed.lo - fetch.hi, hi=computed.hi - fetch.lo)


def lookup_s(num_prompt_tokens: NDArray[np.integer], *, block_size: int) -> Seconds:
    """Return the seconds of hashing and looking up the blocks of whole prompts."""
    lo, hi = _LARGE_LOOKUP_S_PER_TOKEN if block_size >= _LARGE_BLOCK else _LOOKUP_S_PER_TOKEN
    tokens = np.asarray(num_prompt_tokens, dtype=np.float64)
    return Seconds(lo=tokens * lo, hi=tokens * hi)


def fetch_s(model: TimeModel, num_cached_tokens: NDArray[np.integer], tier: Tier) -> Seconds:
    """Return the seconds of bringing cached blocks into the GPUs.

    Over the host link each rank brings its own share. Other tiers are shared by the ranks: at best
    each byte comes once, at worst every rank fetches what it holds, copies of latents and of few
    heads included.
    """
    per_rank = kv_bytes_per_token(
        model.spec, kv_cache_dtype=model.kv_cache_dtype, tensor_parallel=model.tensor_parallel
    )
    slow, fast = tier.bandwidth(model.gpu)
    least, most = per_rank, per_rank
    if tier.host_link_share is None:
        least = kv_bytes_per_token(model.spec, kv_cache_dtype=model.kv_cache_dtype)
        most = per_rank * model.tensor_parallel
    tokens = np.asarray(num_cached_tokens, dtype=np.float64)
    is_fetched = tokens > 0
    return Seconds(
        lo=np.where(is_fetched, tokens * least / fast + tier.fixed_s[0], 0.0),
        hi=np.where(is_fetched, tokens * most / slow + tier.fixed_s[1], 0.0),
    )


def break_even_bandwidth(
    model: TimeModel, num_cached_tokens: int, *, efficiency: tuple[float, float] = (0.3, 0.6)
) -> tuple[float, float]:
    """Return the bytes a second, all ranks together, at which a fetch takes as long as computing.

    KV bytes a token by recompute seconds a token, for a cached prefix of that length at the given
    share of the peak. Faster tiers win for long prefixes; `break_even_tokens` adds the fixed cost.
    """
    flops = saved_flops(model.spec, num_cached_tokens, last_position_only=model.last_position_only)
    per_token = kv_bytes_per_token(model.spec, kv_cache_dtype=model.kv_cache_dtype)
    size = float(per_token) * num_cached_tokens
    lo, hi = (size * model.peak_flops_per_s * share / flops for share in efficiency)
    return lo, hi


def break_even_tokens(model: TimeModel, tier: Tier) -> tuple[int | None, int | None]:
    """Return the shortest cached prefix that is worth a fetch: at best, and at worst.

    Computing is taken at large-batch efficiency. None: no prefix up to 2**20 tokens is.
    """
    best = _shortest(model, tier, is_best=True)
    worst = _shortest(model, tier, is_best=False)
    return best, worst


def _shortest(model: TimeModel, tier: Tier, *, is_best: bool) -> int | None:
    lengths = np.unique(np.geomspace(1, _LONGEST_BREAK_EVEN, 4000).astype(np.int64))
    flops = saved_flops(model.spec, lengths, last_position_only=model.last_position_only)
    low, high = model.efficiency_band(np.asarray(2048))
    # At best for the fetch: computing is slow and the link fast.
    share = float(low if is_best else high)
    computed = flops / (model.peak_flops_per_s * share)
    fetched = fetch_s(model, lengths, tier)
    pays = computed > (fetched.lo if is_best else fetched.hi)
    if not pays.any():
        return None
    return int(lengths[int(np.argmax(pays))])
