"""The shape of a model, as far as it costs FLOPs or bytes.

A `ModelSpec` is what a `config.json` means, whatever its spelling: per layer the mixers (attention,
latent attention, state-space and convolution layers), the feed-forward parts and the parameters
that no matrix product touches. Only shapes are here; `cost` turns them into FLOPs, bytes and
seconds. Equal layers are equal values, so that anything a layer costs is worked out once per
distinct layer (`ModelSpec.distinct_layers`).

Parts that the prefill of a text prompt doesn't run (vision and audio encoders, multi-token
prediction layers) are not in it; `num_draft_layers` says how many of the latter the files hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from prefixaudit.core.unknown import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with `num_kv_heads` key and value heads of `head_dim` elements.

    A query sees at most `window` keys, itself included, or the keys of its own chunk of `chunk`
    positions; both None is full causal attention. With an `output_gate` the query projection is
    twice as wide. `key_is_value`: one projection gives both. `reuses_kv`: the layer has no keys and
    values of its own and reads those of an earlier layer.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None
    chunk: int | None = None
    output_gate: bool = False
    key_is_value: bool = False
    reuses_kv: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The small attention that selects `top_k` keys for sparse latent attention."""

    num_heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: a latent of `kv_lora_rank` plus `rope_head_dim` is cached.

    `q_lora_rank` None: the query has one full matrix.
    """

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Gated delta rule (Qwen3-Next, Qwen3.5): one matrix state a value head."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Kimi delta attention: a gated delta rule with a gate per channel."""

    num_heads: int
    head_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Selective state space with `inner` channels and a state of `state_size` a channel."""

    inner: int
    state_size: int
    time_step_rank: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """State space with scalar decay a head; B and C are shared in `num_groups` groups."""

    inner: int
    state_size: int
    num_groups: int
    num_heads: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution:
    """A gated convolution over the last `conv_kernel` positions of `inner` channels (LFM2)."""

    inner: int
    conv_kernel: int


StateMixer: TypeAlias = GatedDelta | KimiDelta | Mamba1 | Mamba2 | ShortConvolution
"""Mixers that keep a state of constant size a sequence instead of keys and values a token."""

Mixer: TypeAlias = Attention | LatentAttention | StateMixer


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """A feed-forward part: up and down, and a gate of the same width when `gated`."""

    width: int
    gated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of which each token passes `num_per_token`, and shared ones that all pass.

    `shared_width` is the width of all shared experts together, 0 without any. `input_width` is the
    width of what an expert reads and writes where that isn't the hidden size (latent experts).
    """

    num_experts: int
    num_per_token: int
    width: int
    gated: bool = True
    shared_width: int = 0
    shared_gate: bool = False
    latent_width: int | None = None


FeedForward: TypeAlias = DenseMlp | Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One decoder layer: mixers (two run side by side in Falcon-H1), then feed-forward parts.

    `per_layer_input` is the width of the embedding that Gemma 3n and 4 add in each layer, else 0.
    `num_vector_parameters` counts norms, biases, sinks and the like: parameters that no matrix
    product touches. `position` names the rotary embedding used: a key of
    `PositionEncoding.rotary`, or None for a layer without one.
    """

    mixers: tuple[Mixer, ...]
    feed_forward: tuple[FeedForward, ...]
    num_vector_parameters: int
    per_layer_input: int = 0
    position: str | None = "default"


RotaryValue: TypeAlias = str | int | float | bool | None | tuple["RotaryValue", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """One rotary embedding, with defaults filled in and names as transformers 5 writes them.

    `parameters` are (name, value) pairs in order of name: theta, factor, frequency lists, … .
    `original_length` is the number of positions that the model was trained for before scaling;
    None where the type has no such length.
    """

    rope_type: str
    theta: float
    rotary_dim: int
    original_length: int | None
    parameters: tuple[tuple[str, RotaryValue], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionEncoding:
    """The rotary embeddings by name ("default", or a layer type) and the longest position.

    `other` holds further (name, value) pairs that change what a position does to keys or queries
    (multi-dimensional sections, temperature tuning, …).
    """

    rotary: tuple[tuple[str, Rotary], ...]
    max_position_embeddings: int | None
    other: tuple[tuple[str, RotaryValue], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the weights of the big matrices are stored: `quant_method` of the file.

    `weight_bits` are the bits of a weight without its scales, UNKNOWN where the file doesn't tell.
    """

    method: str
    weight_bits: int | Unknown


StateDtype: TypeAlias = Literal["model", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSpec:
    """What a model keeps of each token or sequence: all that its memory depends on.

    `mixers` are those of all layers in order. It is known for some models whose FLOPs are not:
    see `families.describe_cache`.
    """

    model_type: str
    mixers: tuple[Mixer, ...]
    dtype: str | Unknown
    state_dtype: StateDtype = "model"
    max_position_embeddings: int | None = None

    @property
    def distinct_mixers(self) -> tuple[tuple[Mixer, int], ...]:
        """Return each distinct mixer with the number of times it occurs."""
        return tuple(Counter(self.mixers).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model's shape: what `families.describe` makes of a config.json.

    `dtype` is the type of weights and activations as the file names it, UNKNOWN where it doesn't.
    `quantization` is None for plain weights.
    `state_dtype` is the type of recurrent states; "model" is the model's own.
    """

    model_type: str
    family: str
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    layers: tuple[LayerSpec, ...]
    position: PositionEncoding
    dtype: str | Unknown
    quantization: Quantization | None = None
    num_vector_parameters: int = 0
    per_layer_vocab_size: int = 0
    state_dtype: StateDtype = "model"
    num_draft_layers: int = 0
    notes: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def cache(self) -> CacheSpec:
        """Return what the model keeps of tokens and sequences."""
        return CacheSpec(
            model_type=self.model_type,
            mixers=tuple(mixer for layer in self.layers for mixer in layer.mixers),
            dtype=self.dtype,
            state_dtype=self.state_dtype,
            max_position_embeddings=self.position.max_position_embeddings,
        )

    @property
    def distinct_layers(self) -> tuple[tuple[LayerSpec, int], ...]:
        """Return each distinct layer with the number of times it occurs."""
        return tuple(Counter(self.layers).items())


COMPONENTS: Final[tuple[str, ...]] = (
    "attn_proj",
    "mla_kv_up",
    "attn_core",
    "indexer_proj",
    "indexer_core",
    "dense_mlp",
    "router",
    "experts",
    "shared",
    "shared_gate",
    "lin_proj",
    "conv",
    "lin_core",
    "ple",
    "lm_head",
)
"""The parts that FLOPs are told apart by, in the order in which a report shows them."""
