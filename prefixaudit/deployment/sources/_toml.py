"""Writes the tables of a prefixaudit.toml, with comments for what isn't known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final

from prefixaudit.deployment.sources._assembly import Assembled
from prefixaudit.printable import printable

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_text(assembled: Assembled, sources: Sequence[str]) -> str:
    """Return a prefixaudit.toml that reads back to the same facts."""
    lines = [
        f"# Understood from {', '.join(printable(name) for name in sources)}.",
        "# false: known to be off or unset. What isn't here is not known, and no default is taken.",
    ]
    for note in assembled.unknown.get("", ()):
        lines.append(f"# not known: {printable(note)}")
    lines += _table((), assembled.data, assembled.unknown)
    return "\n".join(lines).rstrip("\n") + "\n"


def _table(
    path: tuple[str, ...], table: Mapping[str, Any], unknown: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in table.items() if _is_tables(value)}
    for key, value in table.items():
        if key not in inner and key not in arrays:
            yield f"{_key(key)} = {_value(value)}"
    if path in (("server",), ("tier",)):
        for note in unknown.get(str(table.get("name")), ()):
            yield f"# not known: {printable(note)}"
    for key, value in inner.items():
        place = (*path, key)
        yield ""
        yield f"[{_dotted(place)}]"
        yield from _table(place, value, unknown)
    for key, tables in arrays.items():
        place = (*path, key)
        for item in tables:
            yield ""
            yield f"[[{_dotted(place)}]]"
            yield from _table(place, item, unknown)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(part) for part in path)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case float():
            text = repr(value)
            return text if re.search(r"[.en]", text) else f"{text}.0"
        case int():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            pairs = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case _:
            return f"[{', '.join(_value(item) for item in value)}]"


def _text(text: str) -> str:
    """Return a basic string; a lone surrogate, which TOML can't hold, becomes U+FFFD."""
    escaped = "".join(
        _ESCAPES.get(char)
        or (f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char)
        for char in text
    )
    return '"' + escaped.encode("utf-8", errors="replace").decode("utf-8") + '"'
