"""Position encoding as identity: a digest of what it is, and when a prefix's KV depends on length.

Two rotary types make the KV of a prefix depend on the total length of the prompt, in transformers
(`modeling_rope_utils.py`, `dynamic_rope_update`; measured in 5.24 for default, linear, dynamic,
yarn, llama3 and longrope):

* dynamic (NTK): the frequencies follow the longest position once it exceeds the trained length;
* longrope: all positions take the long factors once the length exceeds the original one.

Engines differ. vLLM's dynamic table is fixed at start (vllm-project/vllm#3488), and after 0.11.0
so is longrope's, by `max_model_len` (vllm-project/vllm PR #27431). SGLang's longrope looks at the
whole batch (`Phi3LongRoPEScaledRotaryEmbedding.forward`), as vLLM's did up to 0.11.0.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from packaging.version import InvalidVersion, Version

from prefixaudit.core.model import ModelSpec, Rotary
from prefixaudit.errors import ConfigurationError

LengthRule: TypeAlias = Literal["config-only", "exact-length", "regime", "max-model-len", "batch"]
"""What the KV of a prefix depends on, beside tokens and config:

config-only    nothing
exact-length   the prompt's total length, where it exceeds `threshold_tokens`
regime         whether the prompt's total length exceeds `threshold_tokens`
max-model-len  whether the served `max_model_len` exceeds it: fixed within a deployment
batch          whether any request in the same batch exceeds it: reuse is unsafe
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDependence:
    """The rule for one model in one engine, with the length at which it sets in.

    `is_safe` is False where a prefix stored by one request can be wrong for another under the
    engine's key. `identity` is what belongs in the position part of an identity for the given
    `max_model_len`; None where that can't be said without the request.
    """

    rope_type: str
    rule: LengthRule
    threshold_tokens: int | None
    is_safe: bool
    identity: str | None
    reason: str


def position_digest(spec: ModelSpec) -> str:
    """Return 32 hex digits that are equal for equal position encodings, however they are spelled.

    Over the rotary embeddings with defaults filled in and the embedding of each layer. The longest
    position is not in it: types that depend on it name it as their original length.
    """
    used = {layer.position for layer in spec.layers}
    value = {
        "rotary": {name: _plain(rotary) for name, rotary in spec.position.rotary if name in used},
        "layers": [layer.position for layer in spec.layers],
        "other": [[name, item] for name, item in spec.position.other],
    }
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(rotary: Rotary) -> dict[str, Any]:
    return {
        "type": rotary.rope_type,
        "theta": rotary.theta,
        "dim": rotary.rotary_dim,
        "original_length": rotary.original_length,
        "parameters": [[name, item] for name, item in rotary.parameters],
    }


def length_dependence(
    spec: ModelSpec,
    *,
    engine: str,
    version: str | None = None,
    max_model_len: int | None = None,
) -> LengthDependence:
    """Return how the KV of a prefix depends on length in an engine ("transformers" is one too).

    An engine whose rotary code isn't known is taken to work as transformers does. `max_model_len`
    None is the model's longest position; `version` None is taken as a current release. Raises
    ConfigurationError for a version that is none.
    """
    used = {layer.position for layer in spec.layers}
    marked = [
        rotary
        for name, rotary in spec.position.rotary
        if name in used and rotary.rope_type in ("dynamic", "longrope")
    ]
    if not marked:
        types = sorted({rotary.rope_type for name, rotary in spec.position.rotary if name in used})
        return LengthDependence(
            rope_type=", ".join(types) or "none",
            rule="config-only",
            threshold_tokens=None,
            is_safe=True,
            identity="",
            reason="keys and values depend on tokens, positions and the config only",
        )
    rotary = marked[0]
    served = max_model_len or spec.position.max_position_embeddings
    if rotary.rope_type == "dynamic":
        return _dynamic(rotary, engine, max_model_len)
    return _longrope(rotary, engine, _release(version), served)


def _dynamic(rotary: Rotary, engine: str, max_model_len: int | None) -> LengthDependence:
    original = rotary.original_length
    if original is not None and max_model_len is not None and max_model_len <= original:
        return LengthDependence(
            rope_type="dynamic",
            rule="config-only",
            threshold_tokens=original,
            is_safe=True,
            identity="",
            reason=f"no served length exceeds {original:,}, so the frequencies never change",
        )
    if engine in ("vllm", "sglang"):
        return LengthDependence(
            rope_type="dynamic",
            rule="config-only",
            threshold_tokens=original,
            is_safe=True,
            identity="",
            reason=f"{engine} scales one table at start, whatever the length "
            "(other numbers than transformers': vllm-project/vllm#3488)",
        )
    return LengthDependence(
        rope_type="dynamic",
        rule="exact-length",
        threshold_tokens=original,
        is_safe=False,
        identity=None,
        reason=f"frequencies follow the total length beyond {original:,} tokens: a prefix of one "
        "length is wrong for every other (huggingface/transformers#25104)"
        if original is not None
        else "frequencies follow the total length",
    )


def _longrope(
    rotary: Rotary, engine: str, release: tuple[int, ...] | None, served: int | None
) -> LengthDependence:
    original = rotary.original_length
    shown = f"{original:,}" if original is not None else "the original length"
    stays_short = original is not None and served is not None and served <= original

    def result(
        rule: LengthRule, *, is_safe: bool, identity: str | None, reason: str
    ) -> LengthDependence:
        return LengthDependence(
            rope_type="longrope",
            rule=rule,
            threshold_tokens=original,
            is_safe=is_safe,
            identity=identity,
            reason=reason,
        )

    is_static = engine == "vllm" and (release is None or release > (0, 11, 0))
    if is_static:
        identity = None
        if original is not None and served is not None:
            identity = "short" if served <= original else "long"
        answer = result(
            "max-model-len",
            is_safe=True,
            identity=identity,
            reason=f"one table at start: long factors if max_model_len exceeds {shown} "
            "(vllm-project/vllm PR #27431)",
        )
    elif stays_short:
        answer = result(
            "config-only",
            is_safe=True,
            identity="short",
            reason=f"no served length exceeds {shown}, so only the short factors are used",
        )
    elif engine in ("vllm", "sglang"):
        answer = result(
            "batch",
            is_safe=False,
            identity=None,
            reason="long factors are used for a whole batch if any position in it exceeds "
            f"{shown}: a stored prefix depends on its neighbours",
        )
    else:
        answer = result(
            "regime",
            is_safe=False,
            identity=None,
            reason=f"long factors are used for all positions once a prompt exceeds {shown} tokens "
            "(huggingface/transformers#33129)",
        )
    return answer


def _release(version: str | None) -> tuple[int, ...] | None:
    if version is None:
        return None
    try:
        return Version(version).release
    except InvalidVersion:
        raise ConfigurationError(f"{version!r} is not a version; 0.33.0 is one") from None
