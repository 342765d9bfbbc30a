"""Times: every unit and spelling becomes seconds since 1970."""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs._times import parse_time

# `date -u -d 2026-03-02T08:00:00Z +%s`
MOMENT = 1772438400.0


@pytest.mark.parametrize(
    "value",
    [
        1772438400,
        1772438400.0,
        "1772438400",
        1772438400000,
        1772438400000000,
        "1772438400000000000",
        "2026-03-02T08:00:00Z",
        "2026-03-02T08:00:00.000000000Z",
        "2026-03-02 08:00:00",
        "2026-03-02 08:00:00 UTC",
        "2026-03-02T09:00:00+01:00",
        "2026-03-02T09:00:00,000+0100",
        "2026-03-02 08:00:00.0000000",
    ],
)
def test_moment_is_the_same_in_every_spelling(value: Any) -> None:
    assert parse_time(value) == MOMENT


@pytest.mark.parametrize(
    "value",
    [None, True, "", "yesterday", "11-29 14:20:01", [], {}, float("nan"), float("inf"), 10**400],
)
def test_what_is_no_time_is_unknown(value: Any) -> None:
    assert parse_time(value) is UNKNOWN


def test_fraction_is_kept() -> None:
    assert parse_time("2026-03-02T08:00:00.1234567Z") == pytest.approx(MOMENT + 0.123456, abs=1e-6)
