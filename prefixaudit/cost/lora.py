"""FLOPs that a LoRA adapter adds to a prefill: two thin products beside each adapted matrix.

For a matrix of `in` by `out`: 2 * rank * (in + out) a token (PEFT, `LoraConfig.target_modules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prefixaudit.core.model import (
    Attention,
    DenseMlp,
    Experts,
    LatentAttention,
    LayerSpec,
    ModelSpec,
)
from prefixaudit.errors import ConfigurationError, unknown_name

ATTENTION_MODULES: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
LATENT_MODULES: Final = (
    "q_proj",
    "q_a_proj",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_b_proj",
    "o_proj",
)
MLP_MODULES: Final = ("gate_proj", "up_proj", "down_proj")
MODULES: Final = tuple(dict.fromkeys((*ATTENTION_MODULES, *LATENT_MODULES, *MLP_MODULES)))


def lora_flops_per_token(
    spec: ModelSpec, *, rank: int, modules: Sequence[str] = ATTENTION_MODULES
) -> int:
    """Return the FLOPs an adapter of `rank` on `modules` adds for each new token.

    MLP modules adapt dense MLPs, shared experts and each of the routed experts that a token passes.
    Raises ConfigurationError for unknown modules and where none of them is in the model.
    """
    for name in modules:
        if name not in MODULES:
            raise ConfigurationError(unknown_name("LoRA module", name, MODULES))
    total = 0
    for layer, count in spec.distinct_layers:
        for name, ends, number in _matrices(layer, spec.hidden_size):
            if name in modules:
                total += 2 * rank * ends * number * count
    if not total:
        raise ConfigurationError(
            f"{spec.model_type} has none of the modules {', '.join(modules)} that the adapter names"
        )
    return total


def _matrices(layer: LayerSpec, hidden: int) -> Iterator[tuple[str, int, int]]:
    """Yield (module, in + out, times a token meets it)."""
    for mixer in layer.mixers:
        match mixer:
            case Attention():
                query = mixer.num_heads * mixer.head_dim
                key = mixer.num_kv_heads * mixer.head_dim
                yield "q_proj", hidden + query * (2 if mixer.output_gate else 1), 1
                if not mixer.reuses_kv:
                    yield "k_proj", hidden + key, 1
                    if not mixer.key_is_value:
                        yield "v_proj", hidden + key, 1
                yield "o_proj", query + hidden, 1
            case LatentAttention():
                query = mixer.num_heads * (mixer.nope_head_dim + mixer.rope_head_dim)
                expanded = mixer.num_heads * (mixer.nope_head_dim + mixer.value_head_dim)
                if mixer.q_lora_rank is None:
                    yield "q_proj", hidden + query, 1
                else:
                    yield "q_a_proj", hidden + mixer.q_lora_rank, 1
                    yield "q_b_proj", mixer.q_lora_rank + query, 1
                yield "kv_a_proj_with_mqa", hidden + mixer.kv_lora_rank + mixer.rope_head_dim, 1
                yield "kv_b_proj", mixer.kv_lora_rank + expanded, 1
                yield "o_proj", mixer.num_heads * mixer.value_head_dim + hidden, 1
            case _:
                pass
    for part in layer.feed_forward:
        match part:
            case DenseMlp():
                yield from _mlp(part.width, hidden, gated=part.gated, number=1)
            case Experts():
                ends = part.latent_width or hidden
                number = part.num_per_token
                yield from _mlp(part.width, ends, gated=part.gated, number=number)
                if part.shared_width:
                    yield from _mlp(part.shared_width, hidden, gated=part.gated, number=1)


def _mlp(width: int, hidden: int, *, gated: bool, number: int) -> Iterator[tuple[str, int, int]]:
    if gated:
        yield "gate_proj", hidden + width, number
    yield "up_proj", hidden + width, number
    yield "down_proj", width + hidden, number
