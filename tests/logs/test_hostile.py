"""Input that changes while it is read, and numbers that are no times, counts or ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import Request, Skipped, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import PrefixAuditError
from prefixaudit.logs import read_logs
from tests.logs.reading import DATA, ids_line, read_bytes

GOOD = json.dumps({"request_id": "g", "prompt_token_ids": [1]}).encode()


def test_file_that_grows_is_read_to_where_it_has_come(tmp_path: Path) -> None:
    """The first lines are more than what is read at once, so the file grows in the middle of it."""
    path = tmp_path / "log.jsonl"
    first = b"".join(ids_line(number) + b"\n" for number in range(40_000))
    path.write_bytes(first)
    stream = read_logs([str(path)])
    items: Iterator[Request | Skipped] = iter(stream)
    read = [next(items)]
    with path.open("ab") as file:
        file.write(ids_line(40_000) + b"\n" + ids_line(40_001)[:10])
    read += items

    assert len(read) == stream.num_records == 40_002
    assert isinstance(read[-1], Skipped)
    assert read[-1].kind == "cut-tail"
    assert read[-1].source.line == 40_002


def test_file_that_shrinks_ends_in_a_cut_tail(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(ids_line(number) + b"\n" for number in range(80_000)))
    stream = read_logs([str(path)])
    items = iter(stream)
    first = next(items)
    with path.open("r+b") as file:
        file.truncate(2**20 + 30)
    rest = list(items)

    assert isinstance(first, Request)
    skips = [item for item in rest if isinstance(item, Skipped)]
    assert [skip.kind for skip in skips] in ([], ["cut-tail"])
    assert stream.num_records == 1 + len(rest)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 30, "-1", "1e-400", "NaN"])
def test_odd_number_is_no_time_and_no_count(tmp_path: Path, number: str) -> None:
    line = (
        '{"request_id": "h", "prompt_token_ids": [1], "arrival_s": 5, '
        f'"num_cached_tokens": {number}, "num_prompt_tokens": {number}}}'
    ).encode()

    read = read_bytes(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD + b"\n")

    assert read.lines == [1, 2, 3]
    count = read.requests[1].usage.num_cached_tokens
    assert count is UNKNOWN or (number == "1e-400" and count == 0)


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 30, "NaN", "true", "-1", "4294967296"])
def test_odd_number_is_no_token_id(tmp_path: Path, number: str) -> None:
    line = f'{{"prompt_token_ids": [5, {number}, 7]}}'.encode()

    read = read_bytes(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD + b"\n")

    assert read.lines == [1, 3]
    assert read.skips == [(2, "bad-token-ids")]


@pytest.mark.parametrize("place", [0, 1, 7, 500])
@pytest.mark.parametrize("value", [True, False])
def test_truth_value_among_many_ids_is_no_id(tmp_path: Path, place: int, value: bool) -> None:
    """A truth value passes for 0 or 1 in an array of numbers."""
    tokens: list[Any] = [1, 0] * 250 + [1]
    tokens[place] = value
    line = json.dumps({"prompt_token_ids": tokens}).encode()

    assert read_bytes(tmp_path, GOOD + b"\n" + line).skips == [(2, "bad-token-ids")]


def test_highest_and_lowest_ids_are_kept(tmp_path: Path) -> None:
    line = json.dumps({"prompt_token_ids": [0, 1, 2**32 - 1]}).encode()

    prompt = read_bytes(tmp_path, line).requests[0].prompt

    assert isinstance(prompt, TokenIds)
    assert prompt.token_ids.tolist() == [0, 1, 2**32 - 1]
    assert not prompt.token_ids.flags.writeable


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (1_772_438_400, 1_772_438_400.0),
        (1_772_438_400_000, 1_772_438_400.0),
        (1_772_438_400_000_000, 1_772_438_400.0),
        (1_772_438_400_000_000_000, 1_772_438_400.0),
        ("1772438400", 1_772_438_400.0),
        ("2026-03-02T08:00:00Z", 1_772_438_400.0),
        ("2026-03-02T09:00:00+01:00", 1_772_438_400.0),
        ("2026-03-02 00:00:00.000000-08:00", 1_772_438_400.0),
        ("soon", None),
    ],
)
def test_clocks_and_zones_of_one_log_are_one_time(
    tmp_path: Path, time: Any, seconds: float | None
) -> None:
    line = json.dumps({"prompt_token_ids": [1], "timestamp": time}).encode()

    arrival = read_bytes(tmp_path, GOOD + b"\n" + line).requests[1].arrival_s

    assert arrival == (UNKNOWN if seconds is None else seconds)


def test_column_name_that_is_no_text_is_no_crash(tmp_path: Path) -> None:
    """Flipped bytes in a Parquet file's footer: what can't be read is said."""
    whole = (DATA / "samples" / "baseten.parquet").read_bytes()
    place = whole.rindex(b"prompt")
    path = tmp_path / "log.parquet"
    for width in (1, 3, 6):
        path.write_bytes(whole[:place] + b"\xa2" * width + whole[place + width :])

        try:
            items = list(read_logs([str(path)]))
        except PrefixAuditError:
            continue
        assert items
