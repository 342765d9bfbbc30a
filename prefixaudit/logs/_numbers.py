"""JSON decoding that keeps whole numbers of any size.

orjson makes floats of whole numbers beyond 64 bits; servers decode with Python's json and don't. A
tool's schema that holds one would then be rendered otherwise than it was. So lines that hold
such a number are decoded by the json module. Finding them must cost next to nothing: most chunks
are cleared by looking at every fourth byte.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import orjson

# The shortest whole number beyond 64 bits is -9223372036854775809; positive ones have 20 digits.
_MIN_DIGITS: Final = 19
_STRIDE: Final = 4
_DIGITS: Final = bytes(48 if 48 <= byte <= 57 else 120 for byte in range(256))
_RUN: Final = b"0" * _MIN_DIGITS
_WHOLE_NUMBER: Final = re.compile(rb"(?<![\d.eE+\-])-?\d{19,}(?![\d.eE])")
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1


def may_hold_long_numbers(data: bytes) -> bool:
    """Say whether 19 digits or more stand in a row anywhere; False is certain."""
    # Of 19 bytes in a row, four in steps of four are looked at.
    is_digit = (np.frombuffer(data, np.uint8)[::_STRIDE] - np.uint8(48)) < 10
    if len(is_digit) < _MIN_DIGITS // _STRIDE:
        return False
    pairs = is_digit[:-1] & is_digit[1:]
    if not (pairs[:-2] & pairs[2:]).any():
        return False
    return _RUN in data.translate(_DIGITS)


def holds_big_integer(data: bytes) -> bool:
    """Say whether a whole number beyond 64 bits stands there, perhaps within a text."""
    for match in _WHOLE_NUMBER.finditer(data):
        digits = match.group()
        if len(digits) > 20 or not _LOWEST <= int(digits) <= _HIGHEST:
            return True
    return False


def loads(data: bytes | str) -> Any:
    """Decode one JSON value. Raises orjson.JSONDecodeError where it is none."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) >= _MIN_DIGITS and may_hold_long_numbers(raw) and holds_big_integer(raw):
        return exactly(raw)
    return orjson.loads(raw)


def exactly(data: bytes) -> Any:
    """Decode a value that holds large whole numbers; orjson's word counts where it is no JSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # too deep, or more digits than Python takes
        return orjson.loads(data)
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        # What json takes and orjson doesn't (NaN, half a surrogate pair) is for the slow way to
        # sort out; a number that is infinite as a float is nothing but large.
        if not error.msg.startswith("number is infinity"):
            raise
    return value
