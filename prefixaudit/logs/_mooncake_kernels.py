"""The parser of flat trace records, compiled: bytes of a chunk in, columns out.

It accepts exactly this grammar, and nothing that could mean something else to a JSON parser:

    line    = ws "{" ws member ws ("," ws member ws)* "}" ws
    member  = key ws ":" ws value, each of the four keys once, in any order
    value   = timestamp: digits ["." digits], at most 15 digits; lengths: at most 15 digits;
              hash_ids: "[" ws [number ws ("," ws number ws)*] "]", numbers in 0..2^64-1

No signs, exponents or leading zeros. Any other line is left to orjson, line by line.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

ACCEPTED = 1
REJECTED = 0

_TIMESTAMP = np.frombuffer(b'"timestamp"', dtype=np.uint8).copy()
_INPUT = np.frombuffer(b'"input_length"', dtype=np.uint8).copy()
_OUTPUT = np.frombuffer(b'"output_length"', dtype=np.uint8).copy()
_IDS = np.frombuffer(b'"hash_ids"', dtype=np.uint8).copy()

_POWERS = np.array([10.0**n for n in range(16)], dtype=np.float64)


@numba.njit(cache=True, nogil=True)
def _skip_space(data: NDArray[np.uint8], place: int, end: int) -> int:
    while place < end and (data[place] == 32 or data[place] == 9 or data[place] == 13):
        place += 1
    return place


@numba.njit(cache=True, nogil=True)
def _starts_with(data: NDArray[np.uint8], place: int, end: int, word: NDArray[np.uint8]) -> bool:
    if end - place < len(word):
        return False
    for offset in range(len(word)):  # noqa: SIM110  numba has no all()
        if data[place + offset] != word[offset]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _number_end(data: NDArray[np.uint8], place: int, end: int) -> int:
    """Return where the digits end; `place` itself where there is no number, or a leading zero."""
    first = place
    while place < end and 48 <= data[place] <= 57:
        place += 1
    if place - first > 1 and data[first] == 48:
        return first
    return place


@numba.njit(cache=True, nogil=True)
def _ids(
    data: NDArray[np.uint8], place: int, end: int, ids: NDArray[np.int64], num_ids: int
) -> tuple[int, int]:
    """Parse a list of numbers; return where it ends (-1: not accepted) and the new count of ids.

    Numbers are written as the bits of their uint64.
    """
    if place >= end or data[place] != 91:
        return -1, num_ids
    place = _skip_space(data, place + 1, end)
    if place < end and data[place] == 93:
        return place + 1, num_ids
    while place < end:
        first = place
        value = np.int64(0)
        while place < end:
            digit = np.int64(data[place]) - 48
            if digit < 0 or digit > 9:
                break
            if place - first == 19 and (
                value < 0
                or value > 1844674407370955161
                or (value == 1844674407370955161 and digit > 5)
            ):
                return -1, num_ids
            value = value * 10 + digit
            place += 1
        length = place - first
        if length == 0 or length > 20 or (length > 1 and data[first] == 48):
            return -1, num_ids
        ids[num_ids] = value
        num_ids += 1
        if place < end and data[place] == 44:
            place += 1
            if place < end and data[place] == 32:
                place += 1
            if place < end and data[place] <= 32:
                place = _skip_space(data, place, end)
            continue
        place = _skip_space(data, place, end)
        if place < end and data[place] == 93:
            return place + 1, num_ids
        if place < end and data[place] == 44:
            place = _skip_space(data, place + 1, end)
            continue
        return -1, num_ids
    return -1, num_ids


@numba.njit(cache=True, nogil=True)
def _record(
    data: NDArray[np.uint8],
    place: int,
    end: int,
    columns: NDArray[np.int64],
    times: NDArray[np.float64],
    row: int,
    ids: NDArray[np.int64],
    num_ids: int,
) -> tuple[int, int]:
    """Parse one line into row `row`; return where it ends (its newline, or `end`) and the new
    count of ids. The place is -1 where the line isn't accepted.
    """
    place = _skip_space(data, place, end)
    if place >= end or data[place] != 123:
        return -1, num_ids
    seen = 0
    place += 1
    while True:
        place = _skip_space(data, place, end)
        if _starts_with(data, place, end, _IDS):
            key = 8
            place += len(_IDS)
        elif _starts_with(data, place, end, _INPUT):
            key = 2
            place += len(_INPUT)
        elif _starts_with(data, place, end, _OUTPUT):
            key = 4
            place += len(_OUTPUT)
        elif _starts_with(data, place, end, _TIMESTAMP):
            key = 1
            place += len(_TIMESTAMP)
        else:
            return -1, num_ids
        if seen & key:
            return -1, num_ids
        seen |= key
        place = _skip_space(data, place, end)
        if place >= end or data[place] != 58:
            return -1, num_ids
        place = _skip_space(data, place + 1, end)
        if key == 8:
            columns[row, 2] = num_ids
            place, num_ids = _ids(data, place, end, ids, num_ids)
            if place < 0:
                return -1, num_ids
            columns[row, 3] = num_ids
        else:
            stop = _number_end(data, place, end)
            num_digits = stop - place
            if num_digits == 0 or num_digits > 15:
                return -1, num_ids
            value = np.int64(0)
            for digit in range(place, stop):
                value = value * 10 + np.int64(data[digit]) - 48
            place = stop
            if key == 2:
                columns[row, 0] = value
            elif key == 4:
                columns[row, 1] = value
            else:
                num_decimals = 0
                if place < end and data[place] == 46:
                    place += 1
                    while place < end and 48 <= data[place] <= 57:
                        value = value * 10 + np.int64(data[place]) - 48
                        num_decimals += 1
                        place += 1
                        if num_digits + num_decimals > 15:
                            return -1, num_ids
                    if num_decimals == 0:
                        return -1, num_ids
                # Both are exact in a double, so that the quotient is the nearest double.
                times[row] = np.float64(value) / _POWERS[num_decimals]
        place = _skip_space(data, place, end)
        if place >= end:
            return -1, num_ids
        if data[place] == 44:
            place += 1
            continue
        if data[place] != 125 or seen != 15:
            return -1, num_ids
        place = _skip_space(data, place + 1, end)
        return (place if place == end or data[place] == 10 else -1), num_ids


@numba.njit(cache=True, nogil=True)
def parse_lines(
    data: NDArray[np.uint8],
    max_line_bytes: int,
    columns: NDArray[np.int64],
    times: NDArray[np.float64],
    bounds: NDArray[np.int64],
    accepted: NDArray[np.uint8],
    ids: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Parse the lines of a chunk; return how many lines, ids and bytes of the chunk were parsed.

    It stops early where there are more lines than rows.

    data      uint8 [bytes]        whole lines, the last may have no newline
    columns   int64 [lines, 4]     out: input_length, output_length, first and last + 1 of the ids
    times     float64 [lines]      out: timestamp as written
    bounds    int64 [lines, 2]     out: where each line starts and ends in `data`
    accepted  uint8 [lines]        out: ACCEPTED, or REJECTED: the row's columns mean nothing
    ids       int64 [bytes/2 + 1]  out: all ids one after another, as the bits of their uint64
    """
    num_lines = 0
    num_ids = 0
    place = 0
    size = len(data)
    while place < size and num_lines < len(accepted):
        end, after = _record(data, place, size, columns, times, num_lines, ids, num_ids)
        accepted[num_lines] = ACCEPTED
        if end < 0 or end - place > max_line_bytes:
            accepted[num_lines] = REJECTED
            after = num_ids
            end = place
            while end < size and data[end] != 10:
                end += 1
        num_ids = after
        bounds[num_lines, 0] = place
        bounds[num_lines, 1] = end
        num_lines += 1
        place = end + 1
    return num_lines, num_ids, min(place, size)
