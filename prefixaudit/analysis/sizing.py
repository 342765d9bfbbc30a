"""How large the pool and its blocks are: as given, as the engine logged, or as a GPU has room.

Capacities count blocks of the log's own size that can hold KV: vLLM's null block is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.report import BlockSizeOrigin, CapacityOrigin
from prefixaudit.core.request import BlockHashes
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.deployment import Deployment
from prefixaudit.deployment.blocks import kv_bytes, kv_type, prefix_block_bytes, raised_block_size
from prefixaudit.deployment.hardware import HardwareFacts
from prefixaudit.errors import UsageError

# vLLM's default on GPUs; used, and said, where neither engine nor block size is given.
ASSUMED_BLOCK_SIZE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """The pool that is simulated.

    capacity_blocks  None is an endless one
    range_blocks     both ends of an estimate, None where the size isn't one
    block_bytes      of one block over all layers, all GPUs together; None without a model
    notes            what is to be said of it
    """

    capacity_blocks: int | None
    origin: CapacityOrigin | None
    range_blocks: tuple[int, int] | None
    block_bytes: int | None
    notes: tuple[str, ...] = ()

    def of_servers(self, num_servers: int) -> PoolSize:
        """Return the pools of several such servers as one of all their blocks."""
        capacity, ends = self.capacity_blocks, self.range_blocks
        return replace(
            self,
            capacity_blocks=None if capacity is None else capacity * num_servers,
            range_blocks=None if ends is None else (ends[0] * num_servers, ends[1] * num_servers),
        )


def kv_bytes_per_token(deployment: Deployment) -> int | None:
    """Return the KV bytes of one token, None where the model isn't known."""
    return kv_bytes(deployment.cache, deployment.identity)


def block_size_of(deployment: Deployment) -> tuple[int, BlockSizeOrigin]:
    """Return the tokens of a block of the deployment's own pool, and who said so.

    The engine's log, then the deployment's setting, then the engine's default as it raises that for
    the model, then 16.
    """
    hardware, engine = deployment.hardware, deployment.engine
    log = None if hardware is None else hardware.engine_log
    if log is not None and log.block_size is not None:
        return log.block_size, "engine-log"
    if deployment.block_size is not None:
        return deployment.block_size, "deployment"
    if engine is None:
        return ASSUMED_BLOCK_SIZE, "assumed"
    size = _raised(deployment, engine.default_block_size)
    return size, "engine" if size == engine.default_block_size else "model"


def choose_block_size(
    deployment: Deployment, first: Prompt | TraceBatch
) -> tuple[int, BlockSizeOrigin]:
    """Return the block size to hash a log in, given its first prompt, and who said so.

    A trace of block ids can only be read in its own blocks; others in those of the deployment.
    """
    hashes = first if isinstance(first, TraceBatch) else first.tokens
    if isinstance(hashes, BlockHashes | TraceBatch):
        return hashes.block_size, "trace"
    return block_size_of(deployment)


def _raised(deployment: Deployment, block_size: int) -> int:
    assert deployment.engine is not None, "the caller looked"
    return raised_block_size(
        deployment.cache,
        deployment.engine,
        deployment.identity,
        block_size=block_size,
        tensor_parallel=deployment.tensor_parallel,
    )


def check_capacity(deployment: Deployment) -> None:
    """Raise UsageError where the pool's size can't be worked out, whatever the log says.

    Raises ConfigurationError where the model's weights don't fit in the GPUs named.
    """
    pool_size(deployment, 1)


def capacity_of(deployment: Deployment, block_size: int) -> int | None:
    """Return the pool's blocks, None for an endless one. Raises as `check_capacity` does."""
    return pool_size(deployment, block_size).capacity_blocks


def pool_size(deployment: Deployment, block_size: int) -> PoolSize:
    """Return the pool in blocks of `block_size` tokens. Raises as `check_capacity` does.

    As given, else as the engine's log says, else estimated for the GPU named, else endless.
    """
    own, _ = block_size_of(deployment)
    own_bytes = prefix_block_bytes(
        deployment.cache,
        deployment.engine,
        deployment.identity,
        block_size=own,
        tensor_parallel=deployment.tensor_parallel,
    )
    size = PoolSize(
        capacity_blocks=None,
        origin=None,
        range_blocks=None,
        block_bytes=None if own_bytes is None else math.ceil(own_bytes * block_size / own),
        notes=_about_blocks(deployment, block_size),
    )
    hardware = deployment.hardware
    if deployment.capacity is not None:
        blocks = deployment.capacity.in_blocks(block_size, size.block_bytes)
        if blocks is None:
            raise _unknown_bytes(deployment, "the pool's size is given in GiB")
        return replace(size, capacity_blocks=blocks, origin="deployment")
    if hardware is not None and hardware.engine_log is not None and hardware.engine_log.has_size:
        tokens, note = _logged_tokens(deployment, hardware, own)
        return replace(
            size,
            capacity_blocks=tokens // block_size,
            origin="engine-log",
            notes=(*size.notes, note),
        )
    if hardware is not None and hardware.gpu is not None and deployment.model is not None:
        return _estimated(deployment, hardware, size, block_size)
    return size


def _unknown_bytes(deployment: Deployment, what: str) -> UsageError:
    reason = deployment.model_problem or "no model is given"
    return UsageError(
        f"{what}, but the KV bytes of a token aren't known: {reason}",
        hint="give --capacity-blocks, or a model folder with --model",
    )


def _about_blocks(deployment: Deployment, block_size: int) -> tuple[str, ...]:
    """Say where the engine's rule gives other blocks than the setting, or than the log's own."""
    engine = deployment.engine
    size, origin = block_size_of(deployment)
    if engine is None or origin == "assumed":
        return ()
    if size > block_size:
        return (
            f"the log is replayed in its own blocks of {block_size:,} tokens, but {engine.name}'s "
            f"have {size:,} here: an engine hits less than shown",
        )
    raised = _raised(deployment, size)
    if origin == "model":
        return (
            f"{engine.name} raises its blocks to {size:,} tokens for this model, so that one holds "
            f"a state: a prefix shorter than that can't be hit (from the model's config; "
            "--engine-log or --block-size replace it)",
        )
    if raised != size and origin == "deployment":
        return (
            f"blocks of {size:,} tokens as given, but {engine.name} would raise them to "
            f"{raised:,} for this model: leave the block size out, or give --engine-log",
        )
    if origin == "engine-log" and deployment.block_size not in (None, size):
        return (
            f"blocks of {size:,} tokens as the engine's log says, not {deployment.block_size:,} "
            "as the deployment does",
        )
    return ()


def _logged_tokens(
    deployment: Deployment, hardware: HardwareFacts, own_size: int
) -> tuple[int, str]:
    """Return the tokens that the pool of the engine's log keeps, and what is said of them."""
    log = hardware.engine_log
    assert log is not None, "the caller looked"
    is_sglang = deployment.engine is not None and deployment.engine.name == "sglang"
    if is_sglang and log.num_tokens is not None:
        return log.num_tokens, f"pool as the engine's log says: {log.num_tokens:,} tokens"
    if deployment.cache is not None and (log.num_blocks is not None or log.num_tokens is None):
        from prefixaudit.cost.blocks import vllm_layout

        layout = vllm_layout(
            deployment.cache,
            block_size=own_size,
            kv_cache_dtype=kv_type(deployment.identity),
            tensor_parallel=deployment.tensor_parallel,
        )
        blocks, said = log.num_blocks, ""
        if blocks is None:
            assert log.kv_bytes is not None, "the log has a size"
            blocks = layout.num_blocks(log.kv_bytes)
            said = f"{log.kv_bytes / 2**30:.2f} GiB of KV, "
        groups = layout.num_groups
        shared = f" in {groups} groups of layers" if groups > 1 else ""
        tokens = max(blocks - 1, 0) // groups * own_size
        return tokens, (
            f"pool as the engine's log says: {said}{blocks:,} blocks{shared}, one of them null"
        )
    if log.num_tokens is not None:
        tokens = max(log.num_tokens // own_size - 1, 0) * own_size
        return tokens, (
            f"pool as the engine's log says: {log.num_tokens:,} tokens, less a block that is null"
        )
    if log.num_blocks is not None:
        return max(log.num_blocks - 1, 0) * own_size, (
            f"pool as the engine's log says: {log.num_blocks:,} blocks, one of them null; without "
            "a model one group of layers is assumed"
        )
    raise _unknown_bytes(deployment, "the engine's log gives its pool in GiB")


def _estimated(
    deployment: Deployment, hardware: HardwareFacts, size: PoolSize, block_size: int
) -> PoolSize:
    """Return the pool that the GPU has room for: the smaller end of a range is simulated."""
    from prefixaudit.cost.pool import PoolSettings, estimate_pool

    assert deployment.model is not None, "the caller looked"
    engine = deployment.engine
    name = "sglang" if engine is not None and engine.name == "sglang" else "vllm"
    own, _ = block_size_of(deployment)
    pool = estimate_pool(
        deployment.model,
        PoolSettings(
            engine=name,
            version=None if engine is None or engine.name != name else engine.facts_version,
            tensor_parallel=deployment.tensor_parallel,
            block_size=own,
            kv_cache_dtype=kv_type(deployment.identity),
            memory_share=deployment.memory_share,
        ),
        gpu=hardware.gpu,
        log=hardware.engine_log,
    )
    reserved = pool.block_size if name == "vllm" else 0
    low, high = (max(tokens - reserved, 0) // block_size for tokens in pool.num_tokens)
    end = low or high
    which = "smaller" if low else "larger (the smaller one is no block)"
    others = "" if engine is not None and engine.name == name else f" by {name}'s rule"
    return replace(
        size,
        capacity_blocks=end,
        origin="estimate",
        range_blocks=(low, high),
        notes=(
            *size.notes,
            f"pool estimated{others}: {low:,} to {high:,} blocks; the {which} end is simulated "
            "(--capacity-blocks or --engine-log replace the estimate)",
            *(f"pool: {text}" for text in pool.assumptions),
        ),
    )
