"""vLLM's blocks: which layers share a page, how large a block becomes, how many fit.

vLLM keeps one pool of equal blocks for all kinds of layers. Layers of one kind (full attention,
one window, states) form groups of equal size; a block holds one page of each layer of a group. So
a mixed model has several groups, and a token takes a block of each of them
(`vllm/v1/core/kv_cache_utils.py`, `get_kv_cache_groups`, `get_kv_cache_config`).

A state of constant size is kept as one page too, which raises the attention block until its page
holds the state (`HybridAttentionMambaModelConfig`; vllm-project/vllm#40696: 528 tokens).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from prefixaudit.core.model import Attention, CacheSpec, LatentAttention, Mixer, ModelSpec
from prefixaudit.cost.memory import cache_of, kv_dtype, mixer_kv_bytes, mixer_state_bytes
from prefixaudit.errors import ConfigurationError

LayerKind: TypeAlias = Literal["full", "window", "chunk", "state"]

# The indexer's key in vLLM: 128 fp8 elements and a float32 scale.
VLLM_INDEXER_BYTES: Final = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers of one kind that keep the same number of tokens.

    `span` is the window or chunk, None for full attention and states. `block_size` is theirs: kinds
    with a smaller page have larger blocks, so that all pages are equal.
    """

    kind: LayerKind
    span: int | None
    num_layers: int
    num_groups: int
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """How one rank's pool is cut: a block is `block_size` tokens of one group of layers.

    `padding_share` is what padding adds to a state page, 0 without states.
    """

    block_size: int
    group_size: int
    groups: tuple[LayerGroup, ...]
    bytes_per_block: int
    padding_share: float = 0.0

    @property
    def num_groups(self) -> int:
        """Return the number of groups; a block holds tokens of one of them."""
        return sum(group.num_groups for group in self.groups)

    @property
    def bytes_of_prefix_block(self) -> int:
        """Return the bytes that `block_size` cached tokens take in all groups together.

        Windowed layers and states count like full ones: a block stays cached until it's evicted.
        """
        return self.bytes_per_block * self.num_groups

    def num_blocks(self, kv_bytes: int) -> int:
        """Return the blocks that fit; one of them is vLLM's null block."""
        return kv_bytes // self.bytes_per_block

    def num_tokens(self, num_blocks: int) -> int:
        """Return the tokens as vLLM logs them: those of a request that needs all its groups."""
        return num_blocks // self.num_groups * self.block_size

    def blocks_of_request(self, num_tokens: int, *, max_batched_tokens: int = 0) -> int:
        """Return the blocks that a request of `num_tokens` holds at most.

        A windowed layer needs its window, the tokens of the step in flight, and one block more
        where the window doesn't begin at a block's edge.
        """
        total = 0
        for group in self.groups:
            match group.kind:
                case "state":
                    blocks = 1
                case "full":
                    blocks = math.ceil(num_tokens / group.block_size)
                case "window" | "chunk":
                    assert group.span is not None
                    past = group.span - 1 if group.kind == "window" else group.span
                    kept = min(past + max_batched_tokens, num_tokens)
                    blocks = math.ceil(kept / group.block_size) + (group.kind == "window")
                    blocks = min(blocks, math.ceil(num_tokens / group.block_size))
            total += group.num_groups * blocks
        return total

    def concurrency(
        self, num_blocks: int, num_tokens: int, *, max_batched_tokens: int = 0
    ) -> float:
        """Return how many requests of `num_tokens` fit at once."""
        return num_blocks / self.blocks_of_request(
            num_tokens, max_batched_tokens=max_batched_tokens
        )


def effective_block_size(
    spec: ModelSpec | CacheSpec,
    *,
    block_size: int = 16,
    kv_cache_dtype: str = "auto",
    tensor_parallel: int = 1,
    alignment: int = 16,
) -> int:
    """Return the tokens of an attention block as vLLM raises it for models with state layers.

    B = alignment * ceil(state page / (alignment * attention bytes a token and layer)); `block_size`
    where that is larger, or where there are no states.
    """
    cache = cache_of(spec)
    dtype = kv_dtype(cache, kv_cache_dtype)
    state_page = max(
        (
            mixer_state_bytes(mixer, cache, tensor_parallel=tensor_parallel)
            for mixer, _ in cache.distinct_mixers
        ),
        default=0,
    )
    per_token = max(
        (_token_bytes(mixer, dtype, tensor_parallel) for mixer, _ in cache.distinct_mixers),
        default=Fraction(0),
    )
    if not state_page or not per_token:
        return block_size
    return max(block_size, alignment * math.ceil(state_page / (alignment * per_token)))


def _token_bytes(mixer: Mixer, dtype: str, tensor_parallel: int) -> Fraction:
    return mixer_kv_bytes(
        mixer, dtype, tensor_parallel=tensor_parallel, indexer_bytes=VLLM_INDEXER_BYTES
    )


def vllm_layout(
    spec: ModelSpec | CacheSpec,
    *,
    block_size: int = 16,
    kv_cache_dtype: str = "auto",
    tensor_parallel: int = 1,
    has_hybrid_manager: bool = True,
) -> BlockLayout:
    """Return the layout of one rank's pool.

    Without the hybrid manager windowed layers count as full ones. Raises ConfigurationError for a
    model without attention, whose states are not kept in blocks of tokens.
    """
    cache = cache_of(spec)
    dtype = kv_dtype(cache, kv_cache_dtype)
    kinds = _kinds(cache, dtype, tensor_parallel, has_hybrid_manager)
    if not any(kind != "state" for kind, _, _ in kinds):
        raise ConfigurationError(
            f"{cache.model_type} has no attention layers: vLLM keeps no blocks of tokens for it"
        )
    raised = effective_block_size(
        cache,
        block_size=block_size,
        kv_cache_dtype=kv_cache_dtype,
        tensor_parallel=tensor_parallel,
    )
    if all(kind == "full" for kind, _, _ in kinds):
        # Pages of full layers may differ in size and still make one group.
        total = sum(number * per_token for (_, _, per_token), number in kinds.items())
        num_layers = sum(kinds.values())
        group = LayerGroup(
            kind="full", span=None, num_layers=num_layers, num_groups=1, block_size=raised
        )
        return BlockLayout(
            block_size=raised,
            group_size=num_layers,
            groups=(group,),
            bytes_per_block=math.ceil(total * raised),
        )
    counts = list(kinds.values())
    # Groups as large as the rarest kind, or as the commonest where that is not much larger.
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    largest = max(per_token for kind, _, per_token in kinds if kind != "state")
    page = largest * raised
    groups = []
    padding = 0.0
    for (kind, span, per_token), number in kinds.items():
        if kind == "state":
            padding = max(padding, float(page / per_token) - 1)
        groups.append(
            LayerGroup(
                kind=kind,
                span=span,
                num_layers=number,
                num_groups=math.ceil(number / size),
                block_size=raised if kind == "state" else int(raised * largest / per_token),
            )
        )
    return BlockLayout(
        block_size=raised,
        group_size=size,
        groups=tuple(groups),
        bytes_per_block=math.ceil(page * size),
        padding_share=padding,
    )


def _kinds(
    cache: CacheSpec, dtype: str, tensor_parallel: int, has_hybrid_manager: bool
) -> dict[tuple[LayerKind, int | None, Fraction], int]:
    """Return the layers of each kind: (kind, span, bytes a token; of a state its whole size)."""
    kinds: Counter[tuple[LayerKind, int | None, Fraction]] = Counter()
    longest = cache.max_position_embeddings
    for mixer, count in cache.distinct_mixers:
        per_token = _token_bytes(mixer, dtype, tensor_parallel)
        if isinstance(mixer, Attention):
            if mixer.reuses_kv:
                continue
            span = mixer.chunk if mixer.chunk is not None else mixer.window
            # A window that no sequence can exceed is none.
            is_limited = span is not None and (longest is None or span < longest)
            if not is_limited or not has_hybrid_manager:
                kinds["full", None, per_token] += count
            elif mixer.chunk is not None:
                kinds["chunk", span, per_token] += count
            else:
                kinds["window", span, per_token] += count
        elif isinstance(mixer, LatentAttention):
            kinds["full", None, per_token] += count
        else:
            state = Fraction(mixer_state_bytes(mixer, cache, tensor_parallel=tensor_parallel))
            kinds["state", None, state] += count
    return dict(kinds)
