"""Values that servers log as Python writes them: string literals, lists of ids, `Name(field=…)`.

Nothing is evaluated but single string literals, and these only where they have the exact form
that `repr` gives.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

import orjson

from prefixaudit.logs._json_lines import RecordError

_ESCAPE: Final = r"\\(?:[\\'\"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"
_LITERAL: Final = rf"'(?:[^'\\\r\n]++|{_ESCAPE})*+'|\"(?:[^\"\\\r\n]++|{_ESCAPE})*+\""
_STRING: Final = re.compile(_LITERAL)
_TOKEN: Final = re.compile(rf"(?:\b[bB])?(?:{_LITERAL})|[\[({{]|[\])}}]|, ")
_FIELD: Final = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=|'(?P<key>[^'\\]*)': )")
_IDS: Final = re.compile(r"\[[0-9, \-]*\]")


def string_end(text: str, start: int) -> int:
    """Return the place behind the string literal at `start`; -1 where it has no end."""
    match = _STRING.match(text, start)
    return -1 if match is None else match.end()


def string_value(literal: str) -> str:
    """Return the text that a whole string literal stands for.

    Raises RecordError where it is none, or holds half of a surrogate pair.
    """
    if _STRING.fullmatch(literal) is None:
        raise RecordError("cut-line", "a quoted text has no end: the line was cut or damaged")
    # Without escapes a literal is its own content, and most prompts of one line have few.
    value = literal[1:-1] if "\\" not in literal else str(ast.literal_eval(literal))
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError(
            "lone-surrogate", "a string holds half of a surrogate pair, which is no text"
        ) from None
    return value


def value_end(text: str, start: int) -> int:
    """Return the place of the comma or bracket behind the value at `start`; -1 without one.

    The value may hold brackets and strings; the end of the text counts as an end too.
    """
    depth = 0
    place = start
    for match in _TOKEN.finditer(text, start):
        token = match.group()
        if token in ("[", "(", "{"):
            depth += 1
        elif token in ("]", ")", "}"):
            if depth == 0:
                return match.start()
            depth -= 1
        elif token == ", " and depth == 0:
            return match.start()
        place = match.end()
    if depth or _has_open_string(text, place):
        return -1
    return len(text)


def _has_open_string(text: str, start: int) -> bool:
    return "'" in text[start:] or '"' in text[start:]


def fields_of(text: str) -> dict[str, str]:
    """Return the fields of `Name(a=1, b='…')` or of `{'a': 1, 'b': '…'}`, each as it was written.

    Raises RecordError where the text ends before its closing bracket.
    """
    opening = min((place for bracket in "({" if (place := text.find(bracket)) >= 0), default=-1)
    if opening < 0:
        raise RecordError("cut-line", "the logged object has no fields: the line was cut")
    fields: dict[str, str] = {}
    place = opening + 1
    while True:
        field = _FIELD.match(text, place)
        if field is None:
            if text[place : place + 1] in (")", "}"):
                return fields
            raise RecordError("cut-line", "the logged object has no end: the line was cut")
        end = value_end(text, field.end())
        if end < 0 or end >= len(text):
            raise RecordError("cut-line", "the logged object has no end: the line was cut")
        name = field.group("name") or field.group("key") or ""
        # In a dictionary the same field is never written twice; keep the first.
        fields.setdefault(name, text[field.end() : end])
        if text[end] != ",":
            return fields
        place = end + 2


def object_end(text: str, start: int) -> int:
    """Return the place behind the object at `start`, a name and brackets or just brackets."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match.group()
        if token in ("[", "(", "{"):
            depth += 1
        elif token in ("]", ")", "}"):
            depth -= 1
            if depth == 0:
                return match.end()
        elif token == ", " and depth == 0:
            return match.start()
    return -1


def id_list(text: str) -> list[Any] | None:
    """Return a list of whole numbers, None where the text is something else."""
    if _IDS.fullmatch(text) is None:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, list) else None


def plain_value(text: str | None) -> Any:
    """Return a string, number, truth value, list of numbers or None as written by Python.

    Anything else comes back as its own text; None also stands for a field that isn't there.
    """
    if text is None or text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    if text[:1] in "'\"" and _STRING.fullmatch(text):
        return string_value(text)
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+", text, re.ASCII):
        return float(text)
    ids = id_list(text)
    return text if ids is None else ids
