"""Reads fields of a config.json: absent is the class default, null is null.

transformers writes only what differs from the defaults of a configuration class, so a missing key
means that class's default, while a null is a value of its own (a missing `sliding_window` gives
every layer of a Mistral model a window of 4,096, a null gives none). The defaults come from the
family; a field that has none and is missing is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.errors import ConfigurationError

MAX_LAYERS: Final = 4096
_MAX_SIZE: Final = 2**40


class Config:
    """The text part of a config.json with the defaults of its model type.

    `family` is the member's name, `values` are the file's own fields, `outer` those of the level
    around a nested text part (empty without one), `aliases` maps other spellings of a field to its
    own, which goes first; `superseding` maps old names that go before the field's own.
    """

    def __init__(
        self,
        model_type: str,
        values: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any],
        family: str = "",
        aliases: Mapping[str, str] | None = None,
        superseding: Mapping[str, str] | None = None,
        outer: Mapping[str, Any] | None = None,
    ) -> None:
        self.model_type = model_type
        self.family = family
        self.outer = dict(outer or {})
        self._defaults = defaults
        self._values = dict(values)
        for alias, name in (aliases or {}).items():
            if alias in self._values:
                self._values.setdefault(name, self._values[alias])
        for old, name in (superseding or {}).items():
            if old in self._values:
                self._values[name] = self._values[old]

    def has(self, name: str) -> bool:
        """Say whether the file itself has the field, be it null."""
        return name in self._values

    def value(self, name: str) -> Any:
        """Return a field, or its default. Raises ConfigurationError where it has neither."""
        if name in self._values:
            return self._values[name]
        if name in self._defaults:
            return self._defaults[name]
        raise ConfigurationError(
            f"config.json: `{name}` is missing; {self.model_type} models need it"
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field of the file or the defaults, `default` where there is none."""
        return self.value(name) if self.has(name) or name in self._defaults else default

    def wrong(self, name: str, value: Any, expected: str) -> ConfigurationError:
        """Return the error for a field whose value can't be what the model type means by it."""
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
        return ConfigurationError(f"config.json: `{name}` is {shown}; {expected} was expected")

    def integer(self, name: str, *, minimum: int = 1) -> int:
        """Return a whole number of at least `minimum`."""
        value = self.value(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not (minimum <= value <= _MAX_SIZE)
        ):
            raise self.wrong(name, value, f"a whole number of {minimum} or more")
        return value

    def optional_integer(self, name: str, *, minimum: int = 1) -> int | None:
        """Return a whole number, or None where the field is null or has no value at all."""
        if self.get(name) is None:
            return None
        return self.integer(name, minimum=minimum)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false; null is false."""
        value = self.get(name, default)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number; `default` where it is null or has no value."""
        value = self.get(name)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) <= _MAX_SIZE
        ):
            raise self.wrong(name, value, "a number")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return text; `default` where it is null or has no value."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, value, "text")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers, None where it is null or has no value."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, int) for item in value):
            raise self.wrong(name, value, "a list of whole numbers")
        return tuple(int(item) for item in value)

    def names(self, name: str, *, count: int | None = None) -> tuple[str, ...] | None:
        """Return a list of `count` names, None where it is null or has no value."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, value, "a list of names")
        if count is not None and len(value) != count:
            raise self.wrong(name, value, f"a list of {count} names, one a layer,")
        return tuple(value)

    def table(self, name: str) -> Mapping[str, Any] | None:
        """Return a nested object, None where it is null or has no value."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return value

    @property
    def num_layers(self) -> int:
        """Return the number of decoder layers."""
        count = self.integer("num_hidden_layers")
        if count > MAX_LAYERS:
            raise self.wrong("num_hidden_layers", count, f"{MAX_LAYERS:,} or less")
        return count

    @property
    def hidden_size(self) -> int:
        """Return the width of the residual stream."""
        return self.integer("hidden_size")

    @property
    def dtype(self) -> str | Unknown:
        """Return the type of the weights: `dtype` or `torch_dtype`, of this level or the outer."""
        for level in (self._values, self.outer):
            for name in ("dtype", "torch_dtype"):
                value = level.get(name)
                if isinstance(value, str) and value != "auto":
                    return value.removeprefix("torch.")
        return UNKNOWN

    @property
    def tied_embeddings(self) -> bool:
        """Say whether the LM head is the embedding.

        The text part's own word goes before the outer level's, and that before the class default:
        transformers 5 writes the outer class's default beside a text part that isn't tied.
        """
        if not isinstance(self._values.get("tie_word_embeddings"), bool):
            value = self.outer.get("tie_word_embeddings")
            if isinstance(value, bool):
                return value
        return self.flag("tie_word_embeddings")

    def either_level(self, name: str) -> Any:
        """Return a field of this level or, where it has none, of the outer one."""
        value = self._values.get(name)
        return value if value is not None else self.outer.get(name)

    def kinds(
        self, allowed: Sequence[str], renamed: Mapping[str, str] | None = None
    ) -> tuple[str, ...] | None:
        """Return `layer_types`, each one of `allowed`; None where the file doesn't give them.

        Raises ConfigurationError for another number of names than layers and for unknown names.
        """
        names = self.names("layer_types", count=self.num_layers)
        if names is None:
            return None
        names = tuple((renamed or {}).get(name, name) for name in names)
        for name in names:
            if name not in allowed:
                raise self.wrong("layer_types", name, f"one of {', '.join(allowed)}")
        return names
