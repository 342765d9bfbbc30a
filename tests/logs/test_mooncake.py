"""Mooncake traces: the kernel says what orjson says, and counts fit the block size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.request import BlockHashes, Request, Skipped
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import LogFile, ReadOptions, mooncake
from prefixaudit.logs._format import ReadItem
from prefixaudit.logs._lines import Chunk
from tests.logs.reading import SHARED, Read, read_bytes, read_records

# Numba's compiler needs a moment the first time.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _as_values(items: Sequence[ReadItem]) -> list[Any]:
    """Turn read items to values that compare; arrays don't. Columns become their requests."""
    values: list[Any] = []
    for item in chain.from_iterable(
        item.requests() if isinstance(item, TraceBatch) else (item,) for item in items
    ):
        if isinstance(item, Skipped):
            values.append(item)
            continue
        assert isinstance(item, Request)
        assert isinstance(item.prompt, BlockHashes)
        values.append(
            (
                item.request_id,
                item.source,
                item.arrival_s,
                item.usage,
                item.session_id,
                item.prompt.hash_ids.tolist(),
                item.prompt.hash_ids.dtype,
                item.prompt.num_prompt_tokens,
            )
        )
    return values


def _both_ways(folder: Path, data: bytes, **options: Any) -> tuple[list[Any], list[Any]]:
    path = folder / "trace.jsonl"
    path.write_bytes(b"")
    chunk = Chunk(data=data, first_line=1)
    plain = mooncake._Reader(LogFile(str(path), ReadOptions(**options)), 4)
    kernel = mooncake._Reader(LogFile(str(path), ReadOptions(**options)), 4)
    return _as_values(list(plain.plainly(chunk))), _as_values(
        list(kernel.requests(kernel.parse(chunk)))
    )


_ODD_LINES = [
    b'{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}',
    b'{"hash_ids":[1,2],"output_length":1,"input_length":5,"timestamp":0}',
    b' \t{ "timestamp" :0.125 , "input_length":\t5, "output_length": 1, "hash_ids" : [ 1 ,2 ] }\r',
    b'{"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [18446744073709551615]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [18446744073709551616]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [9223372036854775808]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [99999999999999999999]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [123456789012345678901]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [-1]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [01]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1,]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [,1]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1 2]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1.0]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1]',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1]}}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1]},',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1]} x',
    b'{"timestamp": 1, "input_length": 4, "hash_ids": [1]}',
    b'{"input_length": 4, "hash_ids": [1]}',
    b'{"timestamp": 1, "timestamp": 2, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1], "hash_ids": [2]}',
    b'{"timestamp": -1, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1e3, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1., "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": .5, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 00, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1234567890123456789, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 0.1234567890123456789, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": null, "input_length": 4, "output_length": null, "hash_ids": [1]}',
    b'{"timestamp": "1", "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": -4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": 4.0, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1], "session_id": "s"}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash\\u005fids": [1]}',
    b'{"timestamp" 1, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1 "input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [1]}{"timestamp": 1, '
    b'"input_length": 4, "output_length": 1, "hash_ids": [1]}',
    b"\0\0\0",
    b"{}",
    b"[1]",
    b"{",
    b"",
    b"   ",
    b'{"timestamp": 1\0, "input_length": 4, "output_length": 1, "hash_ids": [1]}',
]


def test_kernel_and_orjson_agree_on_odd_lines(tmp_path: Path) -> None:
    plain, kernel = _both_ways(tmp_path, b"\n".join([*_ODD_LINES, b""]))

    assert plain == kernel
    assert sum(isinstance(item, tuple) for item in plain) > 10


@pytest.mark.parametrize("line", range(len(_ODD_LINES)))
def test_kernel_and_orjson_agree_on_an_odd_tail(tmp_path: Path, line: int) -> None:
    plain, kernel = _both_ways(tmp_path, _ODD_LINES[line])

    assert plain == kernel


_NUMBERS = st.one_of(st.integers(0, 30), st.integers(-3, 2**64 + 3), st.integers(10**17, 10**20))


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(
        st.tuples(
            st.one_of(_NUMBERS, st.floats(0, 1e9), st.decimals(0, 10**6, places=4).map(float)),
            _NUMBERS,
            st.lists(_NUMBERS, max_size=6),
            st.permutations(["timestamp", "input_length", "output_length", "hash_ids"]),
            st.sampled_from(["", " ", "\t"]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=5,
    ),
    cut=st.one_of(st.none(), st.integers(0, 200)),
)
def test_kernel_and_orjson_agree(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], cut: int | None
) -> None:
    rows = []
    for timestamp, output, ids, order, space, more in lines:
        values = {
            "timestamp": repr(timestamp),
            "input_length": str(4 * len(ids) + more),
            "output_length": str(output),
            "hash_ids": "[" + f"{space},{space}".join(map(str, ids)) + "]",
        }
        rows.append("{" + ", ".join(f'"{key}":{space}{values[key]}' for key in order) + "}")
    data = "\n".join(rows).encode()
    plain, kernel = _both_ways(tmp_path_factory.getbasetemp(), data[:cut])

    assert plain == kernel


def test_kernel_takes_usual_lines_itself() -> None:
    """Otherwise the property above would hold for a kernel that rejects everything."""
    from prefixaudit.logs._mooncake_kernels import parse_lines

    data = b"".join(line + b"\n" for line in _ODD_LINES[:7])
    accepted = np.zeros(8, dtype=np.uint8)
    columns, times = np.zeros((8, 4), dtype=np.int64), np.zeros(8)
    ids = np.zeros(len(data) // 2 + 1, dtype=np.int64)
    num_lines, num_ids, num_bytes = parse_lines(
        np.frombuffer(data, dtype=np.uint8), 10**6, columns, times,
        np.zeros((8, 2), dtype=np.int64), accepted, ids,
    )  # fmt: skip

    assert (num_lines, accepted[:7].tolist()) == (7, [1, 1, 1, 1, 1, 0, 1])
    assert num_bytes == len(data)
    assert ids[:num_ids].view(np.uint64).tolist() == [1, 2, 1, 2, 1, 2, 2**64 - 1, 2**63]


def test_chunks_of_many_short_lines_lose_none(tmp_path: Path) -> None:
    """More lines than the kernel has rows at first, and the numbers of the lines behind them."""
    record = b'{"timestamp": 1, "input_length": 4, "output_length": 1, "hash_ids": [7]}\n'
    plain, kernel = _both_ways(tmp_path, b"[]\n" * 1000 + record)

    assert kernel == plain
    assert len(kernel) == 1001


def test_long_traces_go_through_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"".join(
        b'{"timestamp": %d, "input_length": 20, "output_length": 1, "hash_ids": [%d, 2, 3, 4, 5]}\n'
        % (number, number)
        for number in range(500)
    )
    options = ReadOptions(trace_block_size=4)
    plain = _as_values(read_bytes(tmp_path, rows, options).items)
    monkeypatch.setattr(mooncake, "KERNEL_AFTER_BYTES", 0)
    kernel = _as_values(read_bytes(tmp_path, rows, options).items)

    assert len(plain) == 500
    assert plain == kernel


def test_times_are_milliseconds_and_ids_uint64(tmp_path: Path) -> None:
    (request,) = read_records(
        tmp_path,
        {"timestamp": 1500, "input_length": 600, "output_length": 9, "hash_ids": [7, 2**64 - 1]},
    ).requests

    assert request.arrival_s == 1.5
    assert request.usage.num_completion_tokens == 9
    assert isinstance(request.prompt, BlockHashes)
    assert (request.prompt.block_size, request.prompt.num_prompt_tokens) == (512, 600)
    assert request.prompt.hash_ids.dtype == np.uint64
    assert request.prompt.hash_ids.tolist() == [7, 2**64 - 1]
    assert request.generated is UNKNOWN


@pytest.mark.parametrize(("num_ids", "is_read"), [(0, False), (1, True), (2, True), (3, False)])
def test_ids_have_to_fit_the_length_rounded_up_or_down(
    tmp_path: Path, num_ids: int, is_read: bool
) -> None:
    """600 tokens are 1.17 blocks of 512."""
    good = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    odd = {**good, "input_length": 600, "hash_ids": list(range(num_ids))}
    path = tmp_path / "log.jsonl"
    path.write_bytes(orjson.dumps(good) + b"\n" + orjson.dumps(odd) + b"\n")
    read = Read(path, options=ReadOptions(trace_block_size=512))

    assert [(2, "id-count")] * (not is_read) == read.skips


@pytest.mark.parametrize("size", [16, 64, 512])
def test_block_size_is_found_where_the_records_leave_no_choice(tmp_path: Path, size: int) -> None:
    records = [
        {"timestamp": 0, "input_length": length, "output_length": 1,
         "hash_ids": list(range(-(-length // size)))}
        for length in (1000, 5000, 9999)
    ]  # fmt: skip
    read = read_records(tmp_path, *records)

    assert len(read.requests) == 3
    assert read.stream.files[0].trace_block_size == size


def test_block_size_that_could_be_several_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="doesn't say its block size"):
        read_records(
            tmp_path, {"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1, 2]}
        )


def test_negative_id_is_a_skip(tmp_path: Path) -> None:
    good = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    read = read_records(tmp_path, good, {**good, "hash_ids": [-1]})

    assert read.skips == [(2, "bad-hash-ids")]


@pytest.mark.parametrize(
    ("name", "num_requests"), [("conversation_trace", 12_031), ("synthetic_trace", 3_993)]
)
def test_public_traces_are_read_in_order(name: str, num_requests: int) -> None:
    """Counts are those that the traces' publishers give."""
    path = SHARED / "traces" / "mooncake" / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip("the public traces aren't here")
    read = Read(path)
    times = [request.arrival_s for request in read.requests]

    assert read.lines == list(range(1, num_requests + 1))
    assert read.skipped == []
    assert times == sorted(time for time in times if time is not UNKNOWN)


def test_trace_that_is_one_array_is_read(tmp_path: Path) -> None:
    records = [
        {"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": ids}
        for length, ids in ((1024, [1, 2]), (1300, [1, 2, 3]), (512, [-1]))
    ]
    read = read_bytes(tmp_path, orjson.dumps(records, option=orjson.OPT_INDENT_2))

    assert read.stream.files[0].trace_block_size == 512
    assert [request.prompt.num_prompt_tokens for request in read.requests] == [1024, 1300]  # type: ignore[union-attr]
    assert [kind for _, kind in read.skips] == ["bad-hash-ids"]
