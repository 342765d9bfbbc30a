"""Turns the spellings of rotary embeddings into one: transformers 4's and 5's, flat and nested.

Up to transformers 4 a file has `rope_theta`, `rope_scaling` (with `type` or `rope_type`) and
`partial_rotary_factor`; from 5 on it has `rope_parameters`, nested by layer type where layers
differ. Defaults are filled in as transformers' `modeling_rope_utils` does, so that two spellings
of one encoding give one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.core.model import PositionEncoding, Rotary, RotaryValue
from prefixaudit.families._config import Config

_OWN_FIELDS: Final = frozenset(
    {
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "original_max_position_embeddings",
    }
)

# Types that read the length a model was trained for (`standardize_rope_params`), and dynamic, whose
# frequencies change beyond it.
_TYPES_WITH_ORIGINAL_LENGTH: Final = ("llama3", "yarn", "longrope", "dynamic")

# What `_compute_yarn_parameters` takes where the file says nothing.
_YARN_DEFAULTS: Final = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}


def rotary(
    config: Config,
    *,
    head_dim: int,
    theta: float,
    partial: float = 1.0,
    parameters: Mapping[str, Any] | None = None,
    renamed_types: Mapping[str, str] | None = None,
) -> Rotary:
    """Return one rotary embedding.

    `parameters` is the object that describes it where that isn't the file's own
    `rope_parameters` or `rope_scaling`; `theta` and `partial` are the model type's defaults.
    """
    given = parameters if parameters is not None else _given(config)
    reader = Config(config.model_type, given, defaults={})
    rope_type = reader.text("rope_type") or reader.text("type") or "default"
    # Multi-dimensional positions are sections of the default type (Qwen2-VL wrote them as a type).
    rope_type = {"mrope": "default"}.get(rope_type, rope_type)
    rope_type = (renamed_types or {}).get(rope_type, rope_type)
    maximum = config.optional_integer("max_position_embeddings")
    original: int | None = None
    if rope_type in _TYPES_WITH_ORIGINAL_LENGTH:
        original = (
            config.optional_integer("original_max_position_embeddings")
            or reader.optional_integer("original_max_position_embeddings")
            or maximum
        )
    rest = {
        name: value
        for name, value in given.items()
        if name not in _OWN_FIELDS and value is not None
    }
    if rope_type == "yarn":
        rest = {**_YARN_DEFAULTS, **rest}
    if rope_type in ("yarn", "longrope") and "factor" not in rest and maximum and original:
        rest["factor"] = maximum / original
    share = reader.number("partial_rotary_factor", config.number("partial_rotary_factor", partial))
    return Rotary(
        rope_type=rope_type,
        theta=reader.number("rope_theta", config.number("rope_theta", theta)),
        rotary_dim=int(head_dim * share),
        original_length=original,
        parameters=tuple(sorted((name, _frozen(value)) for name, value in rest.items())),
    )


def _given(config: Config) -> Mapping[str, Any]:
    # transformers takes `rope_scaling` first where a file has both.
    return config.table("rope_scaling") or config.table("rope_parameters") or {}


def rotary_by_layer_type(
    config: Config, *, head_dims: Mapping[str, int], thetas: Mapping[str, float]
) -> tuple[tuple[str, Rotary], ...] | None:
    """Return the embeddings of a nested `rope_parameters`, None where it isn't nested.

    `head_dims` and `thetas` have one entry a layer type; a type that the file leaves out has none.
    """
    given = _given(config)
    if not any(isinstance(given.get(name), Mapping) for name in head_dims):
        return None
    return tuple(
        (
            name,
            rotary(
                config,
                head_dim=head_dims[name],
                theta=thetas[name],
                parameters=given[name],
            ),
        )
        for name in head_dims
        if isinstance(given.get(name), Mapping)
    )


def local_and_global(
    config: Config, *, head_dim: int, theta: float, local_theta: float
) -> tuple[tuple[str, Rotary], ...]:
    """Return the embeddings of full and of windowed layers (Gemma 3, OLMo 3).

    In files of transformers 4 `rope_scaling` and `rope_theta` are those of the full layers;
    from 5 on `rope_parameters` is nested by layer type.
    """
    nested = config.table("rope_parameters") or {}
    scaling = config.table("rope_scaling") or {}
    full = {**(nested.get("full_attention") or {}), **scaling}
    local = dict(nested.get("sliding_attention") or {})
    local.setdefault("rope_theta", local_theta)
    return (
        ("full_attention", rotary(config, head_dim=head_dim, theta=theta, parameters=full)),
        ("sliding_attention", rotary(config, head_dim=head_dim, theta=theta, parameters=local)),
    )


def position_encoding(
    config: Config,
    named: Mapping[str, Rotary] | tuple[tuple[str, Rotary], ...],
    *,
    other: Mapping[str, Any] | None = None,
) -> PositionEncoding:
    """Return the position encoding made of the rotary embeddings `named`."""
    pairs = tuple(named.items()) if isinstance(named, Mapping) else named
    return PositionEncoding(
        rotary=tuple(sorted(pairs, key=lambda pair: pair[0])),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        other=tuple(sorted((name, _frozen(value)) for name, value in (other or {}).items())),
    )


def _frozen(value: Any) -> RotaryValue:
    """Return a hashable value in which 8 and 8.0 are the same."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((str(name), _frozen(item)) for name, item in sorted(value.items()))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53:
        return float(value)
    if isinstance(value, str | float | bool) or value is None:
        return value
    return str(value)
