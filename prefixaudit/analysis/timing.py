"""Seconds, money and samples of a log: what its hits are worth, and what n > 1 costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prefixaudit.analysis.sizing import block_size_of
from prefixaudit.core.trace import Int64Array
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.blocks import kv_type

if TYPE_CHECKING:  # most logs have neither times nor samples
    from prefixaudit.core.times import ForkFacts, TimeFacts


def time_facts(
    deployment: Deployment,
    num_prompt_tokens: Int64Array,
    num_cached_tokens: Int64Array,
    *,
    is_endless_pool: bool,
) -> TimeFacts | None:
    """Return what the hits (int64 [requests]) are worth, None without a GPU or a model.

    Raises ConfigurationError for a measured throughput that no such GPU can reach.
    """
    hardware, model = deployment.hardware, deployment.model
    if hardware is None or hardware.gpu is None or model is None:
        return None
    from prefixaudit.core.times import TimeFacts
    from prefixaudit.cost.log_times import log_times
    from prefixaudit.cost.time import TimeModel, default_compute_type

    return TimeFacts(
        gpu=hardware.gpu.title,
        tensor_parallel=deployment.tensor_parallel,
        usd_per_gpu_hour=hardware.usd_per_gpu_hour,
        is_endless_pool=is_endless_pool,
        times=log_times(
            TimeModel(
                spec=model,
                gpu=hardware.gpu,
                tensor_parallel=deployment.tensor_parallel,
                compute_type=default_compute_type(model, hardware.gpu),
                kv_cache_dtype=kv_type(deployment.identity),
                efficiency=hardware.efficiency,
                measured=hardware.measured,
            ),
            num_prompt_tokens,
            num_cached_tokens,
            block_size=block_size_of(deployment)[0],
            usd_per_gpu_hour=hardware.usd_per_gpu_hour,
        ),
    )


def fork_facts(
    forks: Mapping[tuple[int, int], int],
    block_size: int,
    min_recomputed_tokens: int,
    block_bytes: int | None,
) -> ForkFacts | None:
    """Return what requests of several samples cost, None without one.

    forks  requests by (prompt tokens, samples)
    """
    if not forks:
        return None
    from prefixaudit.core.times import ForkFacts, ForkRow
    from prefixaudit.pool.forks import fork_blocks

    rows: dict[int, list[int]] = {}
    spared = 0
    for (num_tokens, num_samples), count in forks.items():
        shared, copies, recomputed = fork_blocks(
            num_tokens, num_samples, block_size, min_recomputed_tokens
        )
        row = rows.setdefault(num_samples, [0, 0, 0, 0])
        for place, number in enumerate((1, shared, copies, recomputed)):
            row[place] += count * number
        spared += count * (num_samples - 1) * shared
    table = tuple(
        ForkRow(
            num_samples=num_samples,
            num_requests=row[0],
            num_shared_blocks=row[1],
            num_private_copies=row[2],
            num_recomputed_tokens=row[3],
        )
        for num_samples, row in sorted(rows.items())
    )
    return ForkFacts(
        num_requests=sum(row.num_requests for row in table),
        num_samples=sum(row.num_samples * row.num_requests for row in table),
        num_shared_blocks=sum(row.num_shared_blocks for row in table),
        num_private_copies=sum(row.num_private_copies for row in table),
        num_recomputed_tokens=sum(row.num_recomputed_tokens for row in table),
        num_blocks_spared=spared,
        block_bytes=block_bytes,
        rows=table,
    )
