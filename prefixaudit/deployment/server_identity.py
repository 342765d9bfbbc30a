"""What a server's options say of the identity of its requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from prefixaudit.core.audit import Setting
from prefixaudit.core.identity import Identity
from prefixaudit.core.unknown import UNKNOWN, Known

# Both spellings that vLLM takes for one format.
_SAME_DTYPE: Final = {"fp8": "fp8_e4m3", "half": "float16", "float": "float32"}
# Keys of config.json that decide a field of the identity; nested configs may hold them too.
_KEYS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "position_encoding": (
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "partial_rotary_factor",
        "dual_chunk_attention_config",
        "original_max_position_embeddings",
    ),
    "attention": (
        "sliding_window",
        "use_sliding_window",
        "sliding_window_pattern",
        "max_window_layers",
        "layer_types",
        "attention_chunk_size",
    ),
}
_AS_IN_THE_CHECKPOINT: Final = "as in the checkpoint"
_OVERRIDE: Final = "override "


def identity_from_settings(
    identity: Identity, settings: Mapping[str, Known[Setting]], overrides: Mapping[str, Any]
) -> Identity:
    """Return what the options say about the identity of every request of the server.

    Where no option changes them and no folder was given, position encoding and attention are the
    checkpoint's own: equal for two servers of one model and revision, and named so.
    """
    values: dict[str, Known[str]] = {}
    if settings.get("enable_lora", UNKNOWN) is False:
        values |= {"lora_name": None, "lora_revision": None, "lora_path": None}
    if settings.get("enable_prompt_embeds", UNKNOWN) is False:
        values["prompt_embeds"] = None
    options = ("hf_overrides", "rope_scaling", "rope_theta")
    is_known = all(settings.get(key, UNKNOWN) is not UNKNOWN for key in options)
    for field, keys in _KEYS_OF.items():
        decisive = _decisive(overrides, keys)
        if decisive:
            text = json.dumps(decisive, sort_keys=True, default=repr)
            values[field] = f"{_OVERRIDE}{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        elif is_known and "unreadable" not in overrides:
            values[field] = _AS_IN_THE_CHECKPOINT
    dtype = identity.dtype
    if settings.get("kv_cache_dtype", UNKNOWN) in (None, "auto") and isinstance(dtype, str):
        values["kv_cache_dtype"] = dtype  # the cache takes the model's type
    return Identity(**values)


def standardised(identity: Identity) -> Identity:
    """Return the identity with data types under one name each."""
    changes = {
        name: _SAME_DTYPE[value]
        for name in ("dtype", "kv_cache_dtype")
        if isinstance(value := getattr(identity, name), str) and value in _SAME_DTYPE
    }
    return replace(identity, **changes)


def config_overrides(settings: Mapping[str, Known[Setting]]) -> dict[str, Any]:
    """Return what --hf-overrides and --rope-scaling lay over config.json; {} where unreadable."""
    result: dict[str, Any] = {}
    text = settings.get("hf_overrides")
    if isinstance(text, str):
        result |= _json_object(text)
    text = settings.get("rope_scaling")
    if isinstance(text, str):
        result["rope_scaling"] = _json_object(text)
    theta = settings.get("rope_theta")
    if isinstance(theta, float):
        result["rope_theta"] = theta
    return result


def laid_over(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json with keys replaced.

    Nested configs (`text_config` …) are laid over key by key, as vLLM does.
    """
    result = dict(config)
    for key, value in overrides.items():
        below = result.get(key)
        if key.endswith("_config") and isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = laid_over(below, value)
        else:
            result[key] = value
    return result


def comparable(identities: Sequence[Identity]) -> tuple[Identity, ...]:
    """Take back what can't be compared: names of checkpoints and options beside real digests.

    Of a field that one server's model folder decides, what is only known as an option or as the
    checkpoint's own elsewhere may be the same or not: it is UNKNOWN there.
    """
    result = list(identities)
    for field in _KEYS_OF:
        values = [getattr(identity, field) for identity in identities]
        if not any(isinstance(value, str) and not _is_named(value) for value in values):
            continue
        for place, value in enumerate(values):
            if _is_named(value):
                result[place] = replace(result[place], **{field: UNKNOWN})
    return tuple(result)


def _decisive(overrides: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    found = {key: overrides[key] for key in keys if key in overrides}
    for key, value in overrides.items():
        if key.endswith("_config") and key not in keys and isinstance(value, Mapping):
            inner = _decisive(value, keys)
            if inner:
                found[key] = inner
    return found


def _is_named(value: object) -> bool:
    return isinstance(value, str) and (
        value == _AS_IN_THE_CHECKPOINT or value.startswith(_OVERRIDE)
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"unreadable": text}
