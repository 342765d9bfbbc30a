"""What an engine says of its own cache while it runs: a line of its log, a scrape of metrics.

Three different figures are called "hit rate" there: of everything since the server started, of the
last requests (vLLM: 1,000) or the last interval, and of what a log covers. A reading says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from prefixaudit.core.request import Source
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown

RateScope: TypeAlias = Literal["recent-requests", "since-start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One reading. Rates and usage lie in 0..1; counters run since the server's start.

    engine              `vllm`, `sglang` …
    server              tells servers and ranks of one source apart (engine number, labels)
    hit_rate            as the engine gives it, weighted by tokens; `hit_rate_scope` says of what
    num_queried_tokens, num_hit_tokens  vLLM's `prefix_cache_queries` and `…_hits`; SGLang's prompt
                        and cached tokens
    num_external_queried_tokens, num_external_hit_tokens  the same of a store behind a connector
    num_prompt_tokens   tokens of all prompts that were prefilled
    num_computed_tokens, num_cached_tokens  SGLang's `#new-token` and `#cached-token`, summed from
                        the log's first line on: what this log covers, not since start
    num_preemptions     since start; `num_waiting`, `num_running` requests are of the moment
    """

    source: Source
    time_s: float | Unknown = UNKNOWN
    engine: Known[str] = UNKNOWN
    server: Known[str] = UNKNOWN
    hit_rate: Known[float] = UNKNOWN
    hit_rate_scope: RateScope | Unknown = UNKNOWN
    num_queried_tokens: Known[int] = UNKNOWN
    num_hit_tokens: Known[int] = UNKNOWN
    num_external_queried_tokens: Known[int] = UNKNOWN
    num_external_hit_tokens: Known[int] = UNKNOWN
    num_prompt_tokens: Known[int] = UNKNOWN
    num_computed_tokens: Known[int] = UNKNOWN
    num_cached_tokens: Known[int] = UNKNOWN
    num_preemptions: Known[int] = UNKNOWN
    num_running: Known[int] = UNKNOWN
    num_waiting: Known[int] = UNKNOWN
    kv_usage: Known[float] = UNKNOWN
    external_hit_rate: Known[float] = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReading:
    """What an engine says of its pool at start-up; UNKNOWN where it doesn't."""

    source: Source
    engine: Known[str] = UNKNOWN
    server: Known[str] = UNKNOWN
    num_pool_tokens: Known[int] = UNKNOWN
    num_pool_blocks: Known[int] = UNKNOWN
    block_size: Known[int] = UNKNOWN
