"""Times of logs as seconds since 1970 (or since a trace's start)."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any, Final

from prefixaudit.core.unknown import UNKNOWN, Unknown

# Epoch numbers of the years 1973 to 5000: seconds lie below 1e11, milliseconds below 1e14,
# microseconds below 1e17. Each unit's range starts where the smaller unit's numbers end.
_UNITS: Final = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (math.inf, 1e9))
_NUMBER: Final = re.compile(r"\s*[+-]?\d+(\.\d*)?\s*", re.ASCII)
_FRACTION: Final = re.compile(r"[.,](\d+)", re.ASCII)


def parse_time(value: Any) -> float | Unknown:
    """Return seconds since 1970, or UNKNOWN where `value` is no time.

    Numbers (or text of digits) are seconds, milli-, micro- or nanoseconds by their size. ISO 8601
    text without an offset is taken as UTC.
    """
    if isinstance(value, bool) or value is None:
        return UNKNOWN
    if isinstance(value, int | float):
        return _from_number(value)
    if not isinstance(value, str) or len(value) > 64:
        return UNKNOWN
    if _NUMBER.fullmatch(value):
        return _from_number(float(value))
    return _from_iso(value.strip())


def _from_number(value: float) -> float | Unknown:
    try:
        number = float(value)
    except OverflowError:
        return UNKNOWN
    if not math.isfinite(number):
        return UNKNOWN
    for limit, per_second in _UNITS:
        if abs(number) < limit:
            return number / per_second
    return UNKNOWN


def _from_iso(text: str) -> float | Unknown:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _from_unusual_iso(text)
    return _seconds(moment)


def _seconds(moment: datetime) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _from_unusual_iso(text: str) -> float | Unknown:
    # Azure writes seven digits of fraction, Go writes nine; datetime holds six.
    text = _FRACTION.sub(lambda match: "." + match.group(1)[:6].ljust(6, "0"), text, count=1)
    text = re.sub(r"\s+(?=([+-]\d\d:?\d\d|Z|UTC)$)", "", text)
    text = re.sub(r"UTC$", "Z", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return UNKNOWN
    return _seconds(moment)


def trace_time(value: Any, *, per_second: float) -> float | Unknown:
    """Return a trace's own time, in units of which `per_second` are a second, as seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    try:
        number = float(value) / per_second
    except OverflowError:
        return UNKNOWN
    return number if math.isfinite(number) else UNKNOWN
