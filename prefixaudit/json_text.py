"""Values as indented JSON, whatever texts from outside they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def json_text(values: Any) -> str:
    """Return values as indented JSON, without a line feed at the end; NaN and infinity are null.

    Lone surrogates (undecodable bytes of a file's name), which JSON can't hold, are escaped.
    """
    return orjson.dumps(_encodable(values), option=orjson.OPT_INDENT_2).decode("utf-8")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
