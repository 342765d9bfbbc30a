"""Typed looks into decoded records: what isn't there is UNKNOWN, what is null is None."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.request import NO_MAPPING, TokenArray
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._json_lines import RecordError

_TYPE_NAME: Final = re.compile(r"[a-z]+(?:_[a-z0-9]+){0,4}", re.ASCII)
MAX_TOKEN_ID: Final = 2**32 - 1


def known_text(record: Mapping[str, Any], name: str) -> Known[str]:
    """Return a text field; numbers are written out, None stays, anything else is UNKNOWN."""
    value = record.get(name, UNKNOWN)
    if value is None or value is UNKNOWN or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return UNKNOWN


def first_text(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> str | None:
    """Return the first non-empty text (or number, written out) under any of the names."""
    names = tuple(names)
    for record in records:
        for name in names:
            value = record.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, str):
                return value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
    return None


def known_count(record: Mapping[str, Any], name: str) -> Known[int]:
    """Return a count of 0 or more; None stays, anything else is UNKNOWN."""
    value = record.get(name, UNKNOWN)
    if value is None or value is UNKNOWN:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return UNKNOWN


def token_ids(value: Any, name: str) -> TokenArray:
    """Return a list of token ids as a read-only uint32 array.

    Raises RecordError where `value` is no list of integers in 0..4294967295.
    """
    if not isinstance(value, list):
        raise RecordError("bad-token-ids", f"`{name}` is {_type(value)}; a list of ids is expected")
    try:
        packed = array("I", value)
    except (TypeError, OverflowError):
        packed = None
    if packed is not None and packed.itemsize == 4:
        ids = np.frombuffer(packed, dtype=np.uint32)
        # Truth values pass for 0 and 1.
        if all(type(value[place]) is int for place in np.flatnonzero(ids <= 1).tolist()):
            ids.flags.writeable = False
            return ids
    if set(map(type, value)) - {int}:
        wrong = next(item for item in value if type(item) is not int)
        raise RecordError(
            "bad-token-ids", f"`{name}` holds {_type(wrong)}; token ids are whole numbers"
        )
    if value:
        lowest, highest = min(value), max(value)
        if lowest < 0:
            raise RecordError(
                "bad-token-ids", f"`{name}` holds {_shown(lowest)}; token ids are 0 or more"
            )
        if highest > MAX_TOKEN_ID:
            raise RecordError(
                "bad-token-ids",
                f"`{name}` holds {_shown(highest)}; token ids are at most {MAX_TOKEN_ID}",
            )
    ids = np.array(value, dtype=np.uint32)
    ids.flags.writeable = False
    return ids


def type_name(value: Any) -> str:
    """Return a record's name for a type in quotes; what can't be a name may be anybody's text."""
    is_name = isinstance(value, str) and _TYPE_NAME.fullmatch(value)
    return f"`{value}`" if is_name else "an unnamed"


def headers_of(value: Any) -> Mapping[str, str]:
    """Return headers with lower-case names; lists of values are joined as HTTP does."""
    if not isinstance(value, dict) or not value:
        return NO_MAPPING
    headers = {}
    for name, content in value.items():
        if isinstance(content, str):
            headers[name.lower()] = content
        elif isinstance(content, list) and all(isinstance(item, str) for item in content):
            headers[name.lower()] = ", ".join(content)
    return MappingProxyType(headers)


def identity_of(record: Mapping[str, Any]) -> dict[str, Known[str]]:
    """Return the identity fields that the record holds under their own names.

    Raises RecordError where one is neither text nor null.
    """
    found: dict[str, Known[str]] = {}
    for name in IDENTITY_FIELDS:
        if name in record:
            value = record[name]
            if value is not None and not isinstance(value, str):
                raise RecordError(
                    "bad-field", f"`{name}` is {_type(value)}; text or null is expected"
                )
            found[name] = value
    return found


_IDENTITIES: dict[tuple[tuple[str, Known[str]], ...], Identity] = {}
_MAX_IDENTITIES: Final = 4096


def shared_identity(fields: Mapping[str, Known[str]]) -> Identity:
    """Return an Identity of these fields; few differ in a log, so equal ones are one object."""
    key = tuple(fields.items())
    identity = _IDENTITIES.get(key)
    if identity is None:
        if len(_IDENTITIES) >= _MAX_IDENTITIES:
            _IDENTITIES.clear()
        identity = _IDENTITIES[key] = Identity(**fields)
    return identity


def _type(value: Any) -> str:
    names = {
        bool: "a truth value", str: "text", int: "a number", float: "a number",
        list: "a list", dict: "an object", type(None): "null",
    }  # fmt: skip
    return names.get(type(value), "something else")


def _shown(number: int) -> str:
    return str(number) if -(10**20) < number < 10**20 else "a number of more than 20 digits"
