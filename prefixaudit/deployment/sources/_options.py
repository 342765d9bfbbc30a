"""Command-line options by name, and what may be kept of them.

A server's options become settings. Only options that a table names are kept, so that keys, tokens
and texts never are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from prefixaudit.deployment.sources._shell import Word

OptionKind: TypeAlias = Literal["flag", "text", "texts", "integer", "number", "json", "presence"]
_HUMAN: Final = {"k": 1000, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_INTEGER: Final = re.compile(r"(-?\d+(?:\.\d+)?)([kmgKMG]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """The options of one program that are kept or have to be told apart.

    kept    long name (with `-`) to kind
    short   short or other names to long ones
    flags   further long names that take no value, so that a word after them is positional
    """

    kept: Mapping[str, OptionKind]
    short: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class Options:
    """What a command line says. `values` by long name; a value None couldn't be read.

    `is_complete` False: words that only a shell knows may hold further options.
    """

    values: dict[str, Any] = field(default_factory=dict)
    positional: list[Word] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    is_complete: bool = True


def parse_options(words: Sequence[Word], table: OptionTable) -> Options:
    """Read options as argparse does: `--a b`, `--a=b`, `--no-a`, `-a b`, `--a.key value`.

    The last of several wins. `_` and `-` are the same in names.
    """
    result = Options()
    dotted: dict[str, dict[str, Any]] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        text = word.text
        if text is None:
            match = re.match(r"(--?[A-Za-z][A-Za-z0-9_.-]*)=", word.raw)
            if match is None:
                result.is_complete = False
                result.unknown.append(f"{word.raw} may hold further options")
                continue
            name, _, _ = _name_of(match[1], table)
            if name in table.kept:
                result.values[name] = None
                result.unknown.append(f"--{name}: {word.raw.partition('=')[2]} isn't known")
            continue
        if not text.startswith("-") or text == "-" or re.fullmatch(r"-\d.*", text):
            result.positional.append(word)
            continue
        option, separator, inline = text.partition("=")
        name, negative, key_path = _name_of(option, table)
        kind = table.kept.get(name)
        takes_none = kind == "flag" or name in table.flags
        values: list[Word] = [Word(inline, word.line)] if separator else []
        may_have_more = False
        if not separator and not takes_none and not negative:
            while place < len(words) and not _is_option(words[place]):
                if values and words[place].text is None:
                    may_have_more = True  # of its values, or further options
                    break
                values.append(words[place])
                place += 1
                if kind != "texts":
                    break
        if kind is None:
            continue
        if key_path:
            value = None if not values or values[0].text is None else _plain(values[0].text)
            _put(dotted.setdefault(name, {}), key_path, value)
            continue
        if negative:
            result.values[name] = False
        elif kind == "flag":
            result.values[name] = not separator or inline.lower() not in ("false", "0")
        elif kind == "presence":
            result.values[name] = True
        elif may_have_more or not values or any(value.text is None for value in values):
            result.values[name] = None
            shown = " ".join(value.raw for value in values if value.text is None)
            result.unknown.append(f"--{name}: {shown or 'its value'} isn't known")
        else:
            result.values[name] = converted(kind, [str(value.text) for value in values])
            if result.values[name] is None:
                result.unknown.append(f"--{name}: its value couldn't be read")
    for name, data in dotted.items():
        below = result.values.get(name)
        result.values[name] = {**(below if isinstance(below, dict) else {}), **data}
    return result


def converted(kind: OptionKind, texts: Sequence[str]) -> Any:
    """Return the value of an option, None where it can't be read."""
    text = texts[-1]
    match kind:
        case "texts":
            return [item for text in texts for item in _list_items(text)]
        case "integer":
            match = _INTEGER.fullmatch(text.strip())
            return None if match is None else int(float(match[1]) * _HUMAN.get(match[2], 1))
        case "number":
            try:
                return float(text)
            except ValueError:
                return None
        case "json":
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                return None
            return value if isinstance(value, dict) else None
        case "flag" | "presence":
            return True
        case "text":
            return text


def without_credentials(address: str) -> str:
    """Return an address without user, password, query and fragment."""
    if "://" not in address:
        return address.rpartition("@")[2]
    try:
        parts = urlsplit(address)
    except ValueError:
        return "unreadable address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _list_items(text: str) -> list[str]:
    """Return `name=path` of an adapter given as JSON, else the text itself."""
    if text.lstrip()[:1] not in "{[" or not text.strip():
        return [text]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    items = value if isinstance(value, list) else [value]
    return [named for item in items if (named := module_text(item)) is not None]


def module_text(item: object) -> str | None:
    """Return `name=path` of an adapter as text or table, None where it is neither."""
    if isinstance(item, str):
        return item
    if not isinstance(item, Mapping):
        return None
    name = item.get("name", item.get("lora_name"))
    path = item.get("path", item.get("lora_path"))
    if not isinstance(name, str):
        return None
    return f"{name}={path}" if isinstance(path, str) else name


def _name_of(option: str, table: OptionTable) -> tuple[str, bool, tuple[str, ...]]:
    """Return the long name, whether it is the negative form, and the keys after dots."""
    if option in table.short:
        return table.short[option], False, ()
    name, *keys = option.lstrip("-").split(".")
    name = name.replace("_", "-")
    name = table.short.get(f"--{name}", name)
    if name not in table.kept and name.startswith("no-"):
        return name.removeprefix("no-"), True, ()
    return name, False, tuple(keys)


def _is_option(word: Word) -> bool:
    text = word.text if word.text is not None else word.raw
    return text.startswith("-") and len(text) > 1 and not re.fullmatch(r"-\d.*", text)


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _put(data: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
    data[keys[-1]] = value
