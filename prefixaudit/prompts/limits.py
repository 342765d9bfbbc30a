"""Bounds what one step of a chat template can build: long texts, long lists, huge numbers.

A timer can't interrupt one long operation inside C, and memory runs out faster than time. So the
operators, filters and methods that make much out of little are checked before they run. Their
results are what Jinja gives; only too large ones raise TooMuch.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

_MAX_NUMBER_BITS = 1 << 16
_BATCH = 512
# What takes a width or a count, and can so make a text or list of any size in one step.
_WIDE_FILTERS = ("center", "indent", "batch", "tojson")
_WIDE_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


# In a %-format or a format field: `%-099999999d`, `{:>99999999}`, `{0!r:*^999999.3f}`.
_LARGE_WIDTH = re.compile(r"%[^%a-zA-Z]*\d{6}|\{[^{}]*:[^{}]*\d{6}")


class TooMuch(BaseException):
    """A value is larger than allowed. Not an Exception, so that no template step swallows it."""


class Limits:
    """Binds bounded steps to an environment and its templates; texts have `max_characters`."""

    def __init__(self, max_characters: int) -> None:
        self.max_characters = max_characters

    def bind_environment(self, environment: Any) -> None:
        """Replace an environment's steps before a template is compiled with it."""
        # Operators whose result can be endless are checked first, and not folded at compile time.
        environment.intercepted_binops = frozenset({"+", "*", "**", "%"})
        environment.binop_table = {
            **environment.binop_table,
            "+": self._add,
            "*": self._multiply,
            "**": self._power,
            "%": self._modulo,
        }
        environment.concat = self._concat
        environment.call = self._bounded_calls(environment.call)
        for name in _WIDE_FILTERS:
            environment.filters[name] = self._bounded(environment.filters[name])
        environment.filters["format"] = self._bounded_format(environment.filters["format"])
        wrap = environment.wrap_str_format
        environment.wrap_str_format = lambda value: self._checked_format(value, wrap)

    def bind_template(self, template: Any) -> None:
        """Replace the steps that a compiled template has taken from Jinja's runtime."""
        # `~` compiles to a call of this global of the generated module.
        names = template.root_render_func.__globals__
        names["str_join"] = self._join
        names["concat"] = self._concat

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that refuses widths and counts larger than a text may be."""

        @functools.wraps(function)
        def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
            self._check_widths((*args, *kwargs.values()))
            return function(value, *args, **kwargs)

        return bounded

    def _bounded_format(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
            _check_layout(value)
            return function(value, *args, **kwargs)

        return bounded

    def _bounded_calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if getattr(function, "__name__", "") in _WIDE_METHODS:
                self._check_widths((*args, *kwargs.values()))
            return call(context, function, *args, **kwargs)

        return bounded

    def _check_widths(self, values: Iterable[Any]) -> None:
        if any(isinstance(value, int) and value > self.max_characters for value in values):
            raise TooMuch

    def _checked_format(self, value: Any, wrap: Callable[[Any], Any]) -> Any:
        text = getattr(value, "__self__", None)
        if isinstance(text, str) and getattr(value, "__name__", "") in ("format", "format_map"):
            _check_layout(text)
        return wrap(value)

    def _concat(self, parts: Iterable[str]) -> str:
        # In batches: a template that never stops writing must not be collected as a whole.
        iterator = iter(parts)
        kept: list[str] = []
        num_characters = 0
        while batch := list(itertools.islice(iterator, _BATCH)):
            num_characters += sum(map(len, batch))
            if num_characters > self.max_characters:
                raise TooMuch
            kept += batch
        return "".join(kept)

    def _join(self, values: Iterable[Any]) -> str:
        return self._concat(list(map(str, values)))

    def _add(self, left: Any, right: Any) -> Any:
        if type(left) is str is type(right):
            if len(left) + len(right) > self.max_characters:
                raise TooMuch
            return left + right
        if _length(left) + _length(right) > self.max_characters:
            raise TooMuch
        return operator.add(left, right)

    def _multiply(self, left: Any, right: Any) -> Any:
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and _length(value) * times > self.max_characters:
                raise TooMuch
        if _bits(left) + _bits(right) > _MAX_NUMBER_BITS:
            raise TooMuch
        return operator.mul(left, right)

    def _power(self, left: Any, right: Any) -> Any:
        if isinstance(right, int) and _bits(left) * right > _MAX_NUMBER_BITS:
            raise TooMuch
        return operator.pow(left, right)

    def _modulo(self, left: Any, right: Any) -> Any:
        if isinstance(left, str):
            widths = right if isinstance(right, tuple) else (right,)
            _check_layout(left)
            if "*" in left and any(_bits(width) > 16 for width in widths):
                raise TooMuch
        return operator.mod(left, right)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _check_layout(layout: Any) -> None:
    """Refuse a format text with a width of more than five digits."""
    if isinstance(layout, str) and _LARGE_WIDTH.search(layout):
        raise TooMuch
