"""Values as indented JSON, whatever texts from outside they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson


def encodable(text: str) -> str:
    """Escape lone surrogates (undecodable bytes of a file's name), which JSON can't hold."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def json_text(values: Any, *, escape: Callable[[str], str] = encodable) -> str:
    """Return values as indented JSON, without a line feed at the end; NaN and infinity are null.

    `escape` is applied to every text and has to leave no lone surrogate.
    """
    return orjson.dumps(_escaped(values, escape), option=orjson.OPT_INDENT_2).decode("utf-8")


def _escaped(value: Any, escape: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {_escaped(key, escape): _escaped(item, escape) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item, escape) for item in value]
    return value
