"""Damaged logs: every record is read or skipped with its line and kind, neighbours survive."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.errors import IncompleteError
from prefixaudit.logs import ReadOptions
from prefixaudit.logs._lines import Chunk, LostLine, chunks_of_lines
from tests.logs.reading import DATA, Read, ids_line, read_bytes

TOKENS = ReadOptions(log_format="tokens")


def test_nul_hole_is_one_skip_and_nuls_before_a_record_are_repaired() -> None:
    """Figures of case B055."""
    read = Read(DATA / "B055-requests.jsonl")

    assert len(read.requests) == 6
    assert read.skips == [(3, "nul-bytes")]
    assert "70000" in read.skipped[0].reason
    repairs = read.stream.files[0].repairs
    assert [(r.source.line, r.kind, r.num_bytes) for r in repairs] == [(6, "nul-bytes", 4096)]
    assert read.stream.num_records == 7


def test_cut_tail_is_told_apart_from_a_cut_line() -> None:
    """Figures of case B057."""
    read = Read(DATA / "B057-requests.jsonl")

    assert len(read.requests) == 3
    assert read.skips == [(3, "cut-line"), (5, "cut-tail")]


def test_utf16_and_byte_order_marks_cost_nothing() -> None:
    """Figures of case B058."""
    read = Read(DATA / "B058-host1.jsonl", DATA / "B058-host2.jsonl")

    assert [file.num_records for file in read.stream.files] == [3, 2]
    assert [file.encoding for file in read.stream.files] == ["utf-16-le", "utf-8-sig"]
    assert read.skipped == []
    assert read.stream.num_repaired == {"bom": 1}


def test_huge_record_is_read_and_its_neighbours_too(tmp_path: Path) -> None:
    """Case B060: 9,000,000 characters of image in one line."""
    url = "data:image/png;base64," + "A" * 9_000_000
    body = {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}]}]}  # fmt: skip
    small = orjson.dumps({"body": {"model": "m", "prompt": [1, 2]}})
    read = read_bytes(tmp_path, b"\n".join([small, orjson.dumps({"body": body}), small, b""]))

    assert read.lines == [1, 2, 3]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_known_without_a_mark(tmp_path: Path, encoding: str) -> None:
    data = (ids_line(1) + b"\r\n" + ids_line(2) + b"\r\n").decode().encode(encoding)
    read = read_bytes(tmp_path, data)

    assert (read.lines, read.stream.files[0].encoding) == ([1, 2], encoding)


@pytest.mark.parametrize("hole", [b"\0\n", b"\0\n\0\n", b"\0"])
def test_nul_bytes_at_the_start_are_not_utf16(tmp_path: Path, hole: bytes) -> None:
    read = read_bytes(tmp_path, hole + ids_line(1) + b"\n", TOKENS)

    assert [request.request_id for request in read.requests] == ["r1"]
    assert len(read.skipped) == hole.count(b"\n")


def test_lone_surrogate_in_utf16_spoils_its_own_line_only(tmp_path: Path) -> None:
    text = [
        ids_line(1).decode(),
        '{"request_id": "\ud800", "prompt_token_ids": [1]}',
        ids_line(3).decode(),
    ]
    data = "\n".join([*text, ""]).encode("utf-16-le", "surrogatepass")
    read = read_bytes(tmp_path, b"\xff\xfe" + data)

    assert (read.lines, read.skips) == ([1, 3], [(2, "invalid-utf8")])


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"request_id": "a\xff", "prompt_token_ids": [1]}', "invalid-utf8"),
        (b'{"request_id": "\\ud800", "prompt_token_ids": [1]}', "lone-surrogate"),
        (b'{"request_id": "a", "prompt_token_ids": [1, 2', "cut-line"),
        (b"INFO 11-29 14:20:01 something else", "invalid-json"),
        (b"[" * 5000, "too-deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "too-deep"),
        (b'{"request_id": "a"}', "no-prompt"),
        (b"17", "no-prompt"),
        (b'{"prompt_token_ids": [1, 1e999]}', "bad-token-ids"),
        (b'{"prompt_token_ids": [99999999999999999999999999]}', "bad-token-ids"),
        (b'{"prompt_token_ids": [' + b"9" * 5000 + b"]}", "invalid-json"),
    ],
)
def test_bad_line_is_one_skip_between_its_neighbours(
    tmp_path: Path, line: bytes, kind: str
) -> None:
    data = b"\n".join([ids_line(1), b"", line, ids_line(4), b""])
    read = read_bytes(tmp_path, data)

    assert (read.lines, read.skips) == ([1, 4], [(3, kind)])
    assert read.stream.num_records == 3


def test_tail_cut_inside_a_character_is_a_cut_tail(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, ids_line(1) + b'\n{"request_id": "\xe2\x82')

    assert read.skips == [(2, "cut-tail")]


def test_whole_last_line_without_newline_is_a_record(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, ids_line(1) + b"\n" + ids_line(2))

    assert (read.lines, read.skips) == ([1, 2], [])


@pytest.mark.parametrize("between", [b"", b"\xef\xbb\xbf", b"\0" * 9, b"\r"])
def test_records_glued_on_one_line_are_each_read(tmp_path: Path, between: bytes) -> None:
    read = read_bytes(tmp_path, ids_line(1) + between + ids_line(2) + b"\n" + ids_line(3) + b"\n")

    assert [request.request_id for request in read.requests] == ["r1", "r2", "r3"]
    assert read.lines == [1, 1, 2]
    assert read.stream.num_records == 3


def test_record_glued_behind_a_cut_one_survives(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, ids_line(1) + b"\n" + ids_line(2)[:20] + ids_line(3) + b"\n")

    assert [request.request_id for request in read.requests] == ["r1", "r3"]
    assert read.skips == [(2, "cut-line")]


def test_nan_is_read_as_servers_read_it(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b'{"prompt_token_ids": [1], "temperature": NaN}\n', TOKENS)

    assert read.lines == [1]


def test_line_too_long_is_skipped_with_its_size(tmp_path: Path) -> None:
    long = b'{"prompt_token_ids": [' + b"1," * 5000 + b"1]}"
    options = ReadOptions(max_line_bytes=1000)
    read = read_bytes(tmp_path, b"\n".join([ids_line(1), long, ids_line(3), b""]), options)

    assert (read.lines, read.skips) == ([1, 3], [(2, "line-too-long")])
    assert str(len(long)) in read.skipped[0].reason


def test_line_of_200_mb_is_measured_in_bounded_memory() -> None:
    def blocks() -> Iterator[bytes]:
        yield b'{"a": 1}\n{"prompt": "'
        for _ in range(200):
            yield block
        yield b'"}\n{"b": 2}\n'

    block = b"x" * 10**6
    tracemalloc.start()
    found = list(chunks_of_lines(blocks(), max_line_bytes=8 * 10**6))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == [
        Chunk(data=b'{"a": 1}\n', first_line=1),
        LostLine(
            line=2,
            kind="line-too-long",
            reason=f"the line has {200 * 10**6 + 14} bytes; at most {8 * 10**6} are read",
        ),
        Chunk(data=b'{"b": 2}\n', first_line=3),
    ]
    assert peak < 30 * 10**6


def test_hole_of_any_size_before_a_record_is_not_held() -> None:
    def blocks() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(10**6)
        yield b"{}\n"

    tracemalloc.start()
    found = list(chunks_of_lines(blocks(), max_line_bytes=10**6))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found == [Chunk(data=b"{}\n", first_line=1, num_nul_bytes=10**8)]
    assert peak < 5 * 10**6


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf"])
def test_empty_file_is_an_error_that_says_so(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(IncompleteError, match=r"log\.jsonl: the file is empty"):
        read_bytes(tmp_path, data)


@settings(max_examples=200, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\0", b"\0\0"]), max_size=40).map(b"".join),
    size=st.integers(1, 7),
    limit=st.integers(0, 12),
)
def test_chunks_hold_each_line_once_with_its_number(data: bytes, size: int, limit: int) -> None:
    """Against split(): each line comes whole, or as a loss that is longer than the limit."""
    blocks = iter([data[place : place + size] for place in range(0, len(data), size)])
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: dict[int, bytes | str] = {}
    for chunk in chunks_of_lines(blocks, limit):
        if isinstance(chunk, LostLine):
            found[chunk.line] = chunk.reason
            continue
        parts = chunk.data.split(b"\n")
        if not chunk.has_tail and chunk.data:
            parts.pop()
        for number, part in enumerate(parts, chunk.first_line):
            leading = bytes(chunk.num_nul_bytes) if number == chunk.first_line else b""
            found[number] = leading + part

    assert list(found) == list(range(1, len(lines) + 1))
    for line, got in zip(lines, found.values(), strict=True):
        if isinstance(got, bytes):
            assert got == line
        else:
            assert f"has {len(line)} bytes" in got
            assert len(line) > limit


_DAMAGES = st.sampled_from(
    ["cut", "nuls-before", "nuls-only", "bad-byte", "bom", "garbage", "blank", "wrong-type", "none"]
)


def _damaged(line: bytes, damage: str, place: int) -> bytes:
    middle = 1 + place % (len(line) - 2)
    changed = {
        "cut": line[:middle],
        "nuls-before": bytes(place + 1) + line,
        "nuls-only": bytes(place + 1),
        "bad-byte": line[:middle] + b"\xff" + line[middle:],
        "bom": b"\xef\xbb\xbf" + line,
        "garbage": b"# a comment",
        "blank": b"\n" + line,
        "wrong-type": b'{"prompt_token_ids": "text"}',
        "none": line,
    }
    return changed[damage]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damages=st.lists(st.tuples(_DAMAGES, st.integers(0, 500)), min_size=1, max_size=12))
def test_records_read_and_skipped_add_up_to_records_present(
    damages: list[tuple[str, int]],
) -> None:
    """However lines are damaged; and undamaged lines give the very requests they gave before."""
    lines = [ids_line(number) for number in range(len(damages))]
    broken = [
        _damaged(line, damage, place) for line, (damage, place) in zip(lines, damages, strict=True)
    ]
    with tempfile.TemporaryDirectory() as name:
        whole = read_bytes(Path(name), b"\n".join([*lines, b""]), TOKENS)
        read = read_bytes(Path(name), b"\n".join([*broken, b""]), TOKENS)

    assert read.stream.num_records == len(lines)
    assert len(read.requests) + len(read.skipped) == len(lines)
    kept = {request.request_id: request.prompt for request in read.requests}
    for request, (damage, _) in zip(whole.requests, damages, strict=True):
        if damage in ("none", "bom", "nuls-before", "blank"):
            assert repr(kept[request.request_id]) == repr(request.prompt)
