"""Attributes of OTLP JSON as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._fields import known_count

_MAX_DEPTH: Final = 32
_SCALARS: Final = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


def attributes_of(value: Any) -> dict[str, Any]:
    """Return attributes by name: of OTLP's list of key and value, or of a plain object.

    Integers that OTLP writes as text become numbers.
    """
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, list):
        return {}
    return {
        item["key"]: _plain(item.get("value"), 0)
        for item in value
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }


def count_of(attributes: Mapping[str, Any], names: Iterable[str]) -> Known[int]:
    """Return the first count under any of the names; text of digits is one."""
    for name in names:
        if name in attributes:
            value = attributes[name]
            if isinstance(value, str) and value.isdecimal() and len(value) < 20:
                value = int(value)
            return known_count({"count": value}, "count")
    return UNKNOWN


def _plain(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for name in _SCALARS:
        if name in value:
            scalar = value[name]
            is_number = name == "intValue" and isinstance(scalar, str)
            if is_number and scalar.lstrip("-").isdecimal() and len(scalar) < 21:
                return int(scalar)
            return scalar
    inner = value.get("arrayValue")
    if isinstance(inner, dict):
        values = inner.get("values")
        return [_plain(item, depth + 1) for item in values] if isinstance(values, list) else []
    inner = value.get("kvlistValue")
    if isinstance(inner, dict) and isinstance(inner.get("values"), list):
        return {
            item["key"]: _plain(item.get("value"), depth + 1)
            for item in inner["values"]
            if isinstance(item, dict) and isinstance(item.get("key"), str)
        }
    return None
