"""What a pool simulation starts with and returns: hits at every capacity, rows at one."""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.core.trace import Float64Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class HitCurve:
    """Sums over the log for each capacity of 0, 1, … blocks; the last one equals an endless pool.

    num_cached_blocks  int64 [capacities]    prompt blocks served from the pool
    flops_saved        float64 [capacities]  prefill FLOPs that these spare; empty without a model
    """

    num_cached_blocks: Int64Array
    flops_saved: Float64Array

    def at(self, capacity_blocks: int | None) -> tuple[int, float]:
        """Return hits (blocks) and FLOPs saved (NaN: no model) at a capacity; None is endless."""
        last = len(self.num_cached_blocks) - 1
        place = last if capacity_blocks is None else min(capacity_blocks, last)
        flops = float(self.flops_saved[place]) if len(self.flops_saved) else float("nan")
        return int(self.num_cached_blocks[place]), flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """One row a request of the trace, in the trace's order.

    num_cached_tokens  int64 [requests]
    donor_offsets      int64 [requests + 1]  where a request's donors start in the next two
    donors             int32 [donors]        position in the trace of the request that stored them,
                                             -1: in the pool before the log
    donor_num_tokens   int64 [donors]        in order from the prompt's start; they add up to
                                             num_cached_tokens
    """

    num_cached_tokens: Int64Array
    donor_offsets: Int64Array
    donors: Int32Array
    donor_num_tokens: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRates:
    """The definitions of a hit rate, each 0..1, NaN where there is nothing to divide by.

    of_tokens            cached prompt tokens / prompt tokens: full blocks, last-token rule, from an
                         empty pool on
    of_ids               matched block ids / block ids of the prompts, without a last-token rule; a
                         trace's partial last id counts, and is matched by the same id after the
                         same blocks. Token prompts have full blocks only
    mean_over_requests   mean of each request's cached share of its prompt tokens
    of_requests          requests with a cached token / requests
    of_requests_by_ids   requests with a matched id / requests
    of_tokens_last_half, of_ids_last_half
                         the same as above over the last half of the requests, the pool then being
                         warm; the first half is replayed, not counted
    """

    of_tokens: float
    of_ids: float
    mean_over_requests: float
    of_requests: float
    of_requests_by_ids: float
    of_tokens_last_half: float
    of_ids_last_half: float
    num_matched_ids: int
    num_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """What the pool held before the log, by a dump of KV events in blocks of `block_size` tokens.

    num_tokens     of `num_prefixes` prefixes, each token once: what was put into the pool
    num_blocks     resident by the dump; of them unrooted (stored before it began), unreachable
                   (behind a removed block) and those on other media were left out
    num_unnamed_prefixes  whose the dump doesn't say: they take room and are never hit
    num_unreadable events that couldn't be read
    """

    path: str
    block_size: int
    num_prefixes: int
    num_tokens: int
    num_blocks: int
    num_unrooted_blocks: int
    num_unreachable_blocks: int
    num_other_media_blocks: int
    num_unnamed_prefixes: int
    num_unreadable: int
