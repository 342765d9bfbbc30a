"""How large an engine's blocks are for a model, in tokens and in bytes.

vLLM raises the blocks of models with state layers until one holds a state, and keeps all kinds of
layers in blocks of one size (see `prefixaudit.cost.blocks`). Other engines keep as many bytes as
the tokens take.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.identity import Identity

if TYPE_CHECKING:
    from prefixaudit.core.model import CacheSpec


def kv_type(identity: Identity) -> str:
    """Return the type that KV is kept in, `auto` (the model's own) where nobody said it."""
    for dtype in (identity.kv_cache_dtype, identity.dtype):
        if isinstance(dtype, str):
            return dtype
    return "auto"


def kv_bytes(cache: CacheSpec | None, identity: Identity) -> int | None:
    """Return the KV bytes of one token in one copy, None where the model isn't known."""
    if cache is None:
        return None
    from prefixaudit.cost.memory import kv_bytes_per_token

    return kv_bytes_per_token(cache, kv_cache_dtype=kv_type(identity))


def raised_block_size(
    cache: CacheSpec | None,
    engine: EngineProfile,
    identity: Identity,
    *,
    block_size: int,
    tensor_parallel: int = 1,
) -> int:
    """Return the tokens of a block as the engine makes it of `block_size` for this model."""
    if cache is None or engine.name != "vllm":
        return block_size
    from prefixaudit.cost.blocks import effective_block_size

    return effective_block_size(
        cache,
        block_size=block_size,
        kv_cache_dtype=kv_type(identity),
        tensor_parallel=tensor_parallel,
    )


def prefix_block_bytes(
    cache: CacheSpec | None,
    engine: EngineProfile | None,
    identity: Identity,
    *,
    block_size: int,
    tensor_parallel: int = 1,
) -> int | None:
    """Return the bytes that `block_size` cached tokens take, all GPUs of a server together.

    None where the model isn't known or keeps nothing of tokens.
    """
    per_token = kv_bytes(cache, identity)
    if not per_token or cache is None:
        return None
    if engine is None or engine.name != "vllm":
        return per_token * block_size
    from prefixaudit.cost.blocks import vllm_layout

    layout = vllm_layout(
        cache,
        block_size=block_size,
        kv_cache_dtype=kv_type(identity),
        tensor_parallel=tensor_parallel,
    )
    size = Fraction(layout.bytes_of_prefix_block * tensor_parallel, layout.block_size)
    return math.ceil(size * block_size)
