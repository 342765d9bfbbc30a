"""Reads TOML files into values, and reports all problems of a file at once.

A reader asks a `Table` for its fields one after another. A field that is missing or of the wrong
type gives a stand-in value and notes the problem; `TomlDocument.finish` adds the keys that nobody
asked for and raises one ConfigurationError with all of it. So a reader builds its values only
after `finish()`, or builds them and throws them away:

    document = TomlDocument.read(path)
    title = document.root.text("title")
    size = document.root.integer("block_size", default=16, minimum=1)
    document.finish()

A problem reads `path:line: key.path: what is wrong; what was expected`. The line is found by a
scan of the text (tomllib keeps none) and left out where the scan doesn't find the key.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from prefixaudit.errors import ConfigurationError

D = TypeVar("D")


class _Required(str):
    """The default of a field without a default."""


REQUIRED: Final = _Required("required")

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_"'-]+)*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


class TomlDocument:
    """One TOML file, its root table and the problems found in it so far."""

    def __init__(self, source: str, text: str) -> None:
        """Parse `text`. Raises ConfigurationError (with the parser's line) if it isn't TOML."""
        self.source = source
        self.problems: list[str] = []
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{source}: not valid TOML: {error}") from None
        self._text = text
        self.root = Table(self, (), data)

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        # Only a problem asks for lines; most files have none.
        return _lines_of_keys(self._text)

    @classmethod
    def read(
        cls, path: Path | Traversable, *, source: str | None = None, before: str | None = None
    ) -> TomlDocument:
        """Read a file, or what stands before the first of its lines that is `before`.

        Raises ConfigurationError if it can't be read or isn't UTF-8 or TOML.
        """
        name = source if source is not None else str(path)
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise ConfigurationError(f"{name}: can't be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{name}: byte {error.start} is not UTF-8; TOML files are UTF-8"
            ) from None
        if before is not None:
            text = text.partition(f"\n{before}\n")[0]
        return cls(name, text)

    def overlaid(self, base: Table, overlays: Iterable[Table], *, without: Iterable[str]) -> Table:
        """Return `base` with each overlay's keys but `without` laid over it, tables key by key.

        Lists and plain values are replaced. Problems keep the lines of the overlay they are in.
        """
        skipped = set(without)
        data: dict[str, Any] = dict(base.data)
        for overlay in overlays:
            own = {key: value for key, value in overlay.data.items() if key not in skipped}
            data = self._laid_over(data, own, base.path, overlay.path)
        return Table(self, base.path, data)

    def _laid_over(
        self,
        below: Mapping[str, Any],
        above: Mapping[str, Any],
        path: tuple[str, ...],
        path_above: tuple[str, ...],
    ) -> dict[str, Any]:
        result = dict(below)
        for key, value in above.items():
            place, place_above = (*path, key), (*path_above, key)
            if place_above in self._lines:
                self._lines[place] = self._lines[place_above]
            old = result.get(key)
            if isinstance(value, dict):
                below_it = old if isinstance(old, dict) else {}
                result[key] = self._laid_over(below_it, value, place, place_above)
            else:
                result[key] = value
        return result

    def problem(self, key_path: tuple[str, ...], message: str) -> None:
        """Note a problem at a key: `message` says what is wrong and what was expected."""
        line = self.line(key_path)
        place = self.source if line is None else f"{self.source}:{line}"
        label = f"{'.'.join(key_path)}: " if key_path else ""
        self.problems.append(f"{place}: {label}{message}")

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """Return the line (from 1) of a key or of the nearest table around it, None if unseen."""
        for length in range(len(key_path), 0, -1):
            if key_path[:length] in self._lines:
                return self._lines[key_path[:length]]
        return None

    def finish(self) -> None:
        """Raise ConfigurationError with all problems, unknown keys included, if there are any."""
        self.root.report_unknown_keys()
        if self.problems:
            raise ConfigurationError(self.problems)


class Table:
    """A table of a TOML file; remembers which keys were asked for."""

    def __init__(
        self, document: TomlDocument, path: tuple[str, ...], data: Mapping[str, Any]
    ) -> None:
        self.document = document
        self.path = path
        self.data = data
        self._asked: dict[str, None] = {}
        self._children: list[Table] = []
        self._is_free = False

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def problem(self, key: str, message: str) -> None:
        """Note a problem of this table's `key`."""
        self.document.problem((*self.path, key), message)

    def report_unknown_keys(self) -> None:
        """Note a problem for each key that nobody asked for, here and in the tables below."""
        if not self._is_free:
            for key in self.data:
                if key not in self._asked:
                    known = list(self._asked)
                    nearest = difflib.get_close_matches(key, known, n=1)
                    hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
                    expected = f"; known: {', '.join(sorted(known))}" if known else ""
                    self.problem(key, f"unknown key{expected}{hint}")
        for child in self._children:
            child.report_unknown_keys()

    def allow_any_keys(self) -> None:
        """Accept keys that nobody asks for: the table's keys are names given by the user."""
        self._is_free = True

    @overload
    def text(self, key: str, *, choices: Iterable[str] | None = None) -> str: ...
    @overload
    def text(self, key: str, *, default: D, choices: Iterable[str] | None = None) -> str | D: ...
    def text(
        self, key: str, *, default: Any = REQUIRED, choices: Iterable[str] | None = None
    ) -> Any:
        """Return a string; one of `choices` where they are given."""
        value = self._value(key, "text", default, "", lambda value: isinstance(value, str))
        if choices is not None and key in self.data and isinstance(self.data[key], str):
            self._check_choice(key, value, choices)
        return value

    @overload
    def integer(
        self, key: str, *, minimum: int | None = None, maximum: int | None = None
    ) -> int: ...
    @overload
    def integer(
        self, key: str, *, default: D, minimum: int | None = None, maximum: int | None = None
    ) -> int | D: ...
    def integer(
        self,
        key: str,
        *,
        default: Any = REQUIRED,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> Any:
        """Return an integer within the bounds (both included)."""
        value = self._value(key, "an integer", default, 0, _is_integer)
        self._check_bounds(key, minimum, maximum)
        return value

    @overload
    def number(
        self, key: str, *, minimum: float | None = None, maximum: float | None = None
    ) -> float: ...
    @overload
    def number(
        self, key: str, *, default: D, minimum: float | None = None, maximum: float | None = None
    ) -> float | D: ...
    def number(
        self,
        key: str,
        *,
        default: Any = REQUIRED,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> Any:
        """Return a float (an integer is taken too) within the bounds (both included)."""
        value = self._value(key, "a number", default, 0.0, _is_number)
        self._check_bounds(key, minimum, maximum)
        return float(value) if key in self.data and _is_number(value) else value

    @overload
    def boolean(self, key: str) -> bool: ...
    @overload
    def boolean(self, key: str, *, default: D) -> bool | D: ...
    def boolean(self, key: str, *, default: Any = REQUIRED) -> Any:
        """Return true or false."""
        return self._value(
            key, "true or false", default, False, lambda value: isinstance(value, bool)
        )

    @overload
    def texts(self, key: str, *, choices: Iterable[str] | None = None) -> tuple[str, ...]: ...
    @overload
    def texts(
        self, key: str, *, default: D, choices: Iterable[str] | None = None
    ) -> tuple[str, ...] | D: ...
    def texts(
        self, key: str, *, default: Any = REQUIRED, choices: Iterable[str] | None = None
    ) -> Any:
        """Return a list of strings as a tuple; each one of `choices` where they are given."""
        value = self._value(key, "a list of texts", default, (), _is_list_of_text)
        if key not in self.data or not _is_list_of_text(value):
            return value
        if choices is not None:
            names = tuple(choices)
            for item in value:
                self._check_choice(key, item, names)
        return tuple(value)

    @overload
    def integers(self, key: str) -> tuple[int, ...]: ...
    @overload
    def integers(self, key: str, *, default: D) -> tuple[int, ...] | D: ...
    def integers(self, key: str, *, default: Any = REQUIRED) -> Any:
        """Return a list of integers as a tuple."""

        def matches(value: object) -> bool:
            return isinstance(value, list) and all(_is_integer(item) for item in value)

        value = self._value(key, "a list of integers", default, (), matches)
        return tuple(value) if key in self.data and matches(value) else value

    def any_value(self, key: str, *, default: Any = REQUIRED) -> Any:
        """Return a value of any type; the caller checks it and notes problems."""
        return self._value(key, "a value", default, None, lambda value: True)

    def table(self, key: str) -> Table:
        """Return the table at `key`; an empty one where there is none."""
        value = self._value(key, "a table", {}, {}, lambda value: isinstance(value, dict))
        child = Table(self.document, (*self.path, key), value)
        self._children.append(child)
        return child

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the list of tables at `key` (`[[key]]`); an empty tuple where there is none."""

        def matches(value: object) -> bool:
            return isinstance(value, list) and all(isinstance(item, dict) for item in value)

        value = self._value(key, f"a list of tables ([[{key}]])", [], [], matches)
        children = tuple(
            Table(self.document, (*self.path, f"{key}[{number}]"), item)
            for number, item in enumerate(value)
        )
        self._children.extend(children)
        return children

    def _value(
        self, key: str, expected: str, default: Any, stand_in: Any, matches: Callable[[Any], bool]
    ) -> Any:
        self._asked[key] = None
        if key not in self.data:
            if default is REQUIRED:
                self.problem(key, f"missing; expected {expected}")
                return stand_in
            return default
        value = self.data[key]
        if not matches(value):
            self.problem(key, f"is {_type_name(value)}; expected {expected}")
            return stand_in
        return value

    def _check_choice(self, key: str, value: str, choices: Iterable[str]) -> None:
        names = tuple(choices)
        if value not in names:
            nearest = difflib.get_close_matches(value, names, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            self.problem(key, f"is '{value}'; expected one of {', '.join(names)}{hint}")

    def _check_bounds(self, key: str, minimum: float | None, maximum: float | None) -> None:
        value: Any = self.data.get(key)
        if not _is_number(value):
            return
        if math.isnan(value):
            self.problem(key, "is nan; expected a number")
        elif minimum is not None and value < minimum:
            self.problem(key, f"is {value}; expected {minimum} or more")
        elif maximum is not None and value > maximum:
            self.problem(key, f"is {value}; expected {maximum} or less")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _type_name(value: object) -> str:
    """Name a TOML type; a value itself may be private and is never shown."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, datetime | date | time):
        return "a date or time"
    names = {str: "text", int: "an integer", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Map key paths to lines (from 1), for headers and keys that start a line; arrays of tables
    are numbered (`versions[0]`). Inside multi-line strings nothing is taken for a key."""
    lines: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    prefix: tuple[str, ...] = ()
    quote: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if quote is not None:
            if quote in line:
                quote = None
            continue
        header = _HEADER.match(line)
        if header:
            path = _resolved(_parts(header.group(2)), counts)
            if header.group(1) == "[[":
                index = counts.get(path, 0)
                counts[path] = index + 1
                path = (*path[:-1], f"{path[-1]}[{index}]")
            prefix = path
            lines.setdefault(path, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault((*prefix, *_parts(key.group(1))), number)
        for mark in ('"""', "'''"):
            if line.count(mark) % 2 == 1:
                quote = mark
                break
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _resolved(parts: tuple[str, ...], counts: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """Number the arrays of tables that a header lies in: it belongs to their last element."""
    path: tuple[str, ...] = ()
    for part in parts[:-1]:
        path = (*path, part)
        if path in counts:
            path = (*path[:-1], f"{part}[{counts[path] - 1}]")
    return (*path, parts[-1]) if parts else path
