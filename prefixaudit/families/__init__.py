"""Model families, one file a family: config.json in, a model's shape out.

A member is `families/NAME.py` and ends in `FAMILY = ModelFamily(...)`. It claims the `model_type`s
whose text part it describes, each with the defaults of its configuration class (transformers 5.24),
since published files leave out what equals a default. A type that no family claims is refused by
name; nothing is guessed from the shape of a file.

A config of a model that also sees or hears holds its text part under `text_config`; only that part
is described.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prefixaudit.core.model import CacheSpec, ModelSpec
from prefixaudit.errors import ConfigurationError, unknown_name
from prefixaudit.families._config import Config
from prefixaudit.families._explicit import explicit_cache
from prefixaudit.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models that one function describes.

    `model_types` gives each claimed type the defaults of its configuration class. `containers` are
    outer types, each with the type of its text part where the file doesn't name that. `aliases` are
    other names of fields, which the field's own name goes before; `superseding` old names that
    transformers lets win.
    """

    title: str
    model_types: Mapping[str, Mapping[str, Any]]
    describe: Callable[[Config], ModelSpec]
    aliases: Mapping[str, str] = field(default_factory=dict)
    superseding: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)


FAMILIES: Final[Registry[ModelFamily]] = Registry(
    kind="model family", package="prefixaudit.families", attribute="FAMILY"
)

_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config")


def describe(config: Mapping[str, Any]) -> ModelSpec:
    """Return the shape of the (text part of the) model that a decoded config.json describes.

    Raises ConfigurationError for a model type that no family knows, naming the known ones, and for
    fields that are missing, of a wrong type or contradict each other.
    """
    text, outer = _text_part(config)
    model_type = text.get("model_type")
    if model_type is None and outer is not None:
        model_type = _containers().get(str(outer.get("model_type")))
    if not isinstance(model_type, str):
        raise ConfigurationError("config.json: `model_type` is missing; it names the architecture")
    for name, family in FAMILIES.items():
        if model_type in family.model_types:
            reader = Config(
                model_type,
                text,
                defaults=family.model_types[model_type],
                family=name,
                aliases=family.aliases,
                superseding=family.superseding,
                outer=outer,
            )
            return family.describe(reader)
    raise ConfigurationError(
        f"config.json: {unknown_name('model type', model_type, known_types())}"
    )


def describe_cache(config: Mapping[str, Any]) -> CacheSpec:
    """Return what the model keeps of tokens and sequences.

    A type that no family knows is taken only where its file itself names everything that the size
    of the cache depends on: layers, KV heads, head size and, with a window, the kind of each layer.
    Raises ConfigurationError otherwise.
    """
    try:
        return describe(config).cache
    except ConfigurationError:
        text, outer = _text_part(config)
        if not isinstance(text.get("model_type"), str) or text["model_type"] in known_types():
            raise
        reader = Config(text["model_type"], text, defaults={}, outer=outer)
        if (cache := explicit_cache(reader)) is None:
            raise
        return cache


def known_types() -> tuple[str, ...]:
    """Return all model types that can be described, sorted."""
    types = {name for family in FAMILIES.values() for name in family.model_types}
    return tuple(sorted(types | set(_containers())))


def _containers() -> dict[str, str]:
    return {
        outer: inner for family in FAMILIES.values() for outer, inner in family.containers.items()
    }


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return the fields of the text part, and those of the level around it (None without one)."""
    for name in _TEXT_PARTS:
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return inner, config
    outer_type = config.get("model_type")
    if isinstance(outer_type, str) and outer_type in _containers():
        # Every field of the text part is the class default, or they stand at the outer level (as in
        # files of Qwen2-VL written by transformers 4).
        inner = {name: value for name, value in config.items() if name != "model_type"}
        return inner, config
    return config, None
