"""Where logs come from: files, folders, patterns, pipes, archives."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sys
import threading
from pathlib import Path

import pytest
import zstandard

from prefixaudit.errors import IncompleteError, UsageError
from prefixaudit.logs import ReadOptions, read_logs
from tests.logs.reading import Read, ids_line, read_bytes

LOG = ids_line(1) + b"\n" + ids_line(2) + b"\n"


def test_folder_is_read_recursively_and_what_is_no_log_is_listed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.jsonl").write_bytes(LOG)
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress(LOG))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / ".hidden.jsonl").write_bytes(LOG)
    read = Read(tmp_path)

    assert [Path(file.path).name for file in read.stream.files] == ["1.jsonl.gz", "2.jsonl"]
    assert [Path(file.path).name for file in read.stream.ignored_files] == ["config.json"]
    assert len(read.requests) == 4


def test_unreadable_log_of_a_folder_is_one_counted_skip(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LOG)
    (tmp_path / "b.jsonl").write_bytes(b"what is this\n")
    read = Read(tmp_path)

    assert [item.kind for item in read.skipped] == ["unreadable-file"]
    assert read.stream.num_records == len(read.items) == 3


def test_folder_without_logs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(UsageError, match="none of the 1 files in the folder is a log"):
        read_logs([str(tmp_path)])


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no files"):
        read_logs([str(tmp_path)])


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl: no such file or folder"):
        read_logs([str(tmp_path / "nowhere.jsonl")])


def test_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file matches"):
        read_logs([str(tmp_path / "*.jsonl")])


def test_pattern_and_name_of_one_file_read_it_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LOG)
    read = Read(tmp_path / "*.jsonl", tmp_path / "a.jsonl", tmp_path)

    assert len(read.requests) == 2


def test_unrecognised_file_is_named_with_the_known_formats(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match=r"log\.jsonl: no log format .*mooncake.*tokens"):
        read_bytes(tmp_path, b'{"event": "load"}\n')


def test_unknown_format_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown log format 'token'.*did you mean 'tokens'"):
        read_logs(["-"], ReadOptions(log_format="token"))


def test_format_is_recognised_behind_damage(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b"\0" * 10 + b"\n{cut\n\xff\n" + LOG)

    assert read.stream.files[0].format_name == "tokens"
    assert read.lines == [4, 5]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(LOG))))
    read = Read("-")

    assert [str(request.source) for request in read.requests] == ["<stdin>:1", "<stdin>:2"]
    assert read.stream.num_bytes_total is None


def test_named_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(LOG * 3,))
    writer.start()
    read = Read(pipe)
    writer.join()

    assert len(read.requests) == 6


def test_bytes_read_end_at_the_total(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, gzip.compress(LOG))

    assert read.stream.num_bytes_read == read.stream.num_bytes_total


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_archive_is_known_by_its_bytes_and_members_are_joined(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    read = read_bytes(tmp_path, pack(LOG) + pack(LOG))

    assert read.lines == [1, 2, 3, 4]
    assert read.stream.files[0].compression in ("gzip", "zstd")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_cut_archive_is_one_skip_behind_what_could_be_read(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    rows = b"".join(ids_line(number * 7919 % 10_007) + b"\n" for number in range(30_000))
    packed = pack(rows)
    read = read_bytes(tmp_path, packed[: len(packed) * 3 // 4])

    assert 1000 < len(read.requests) < 30_000
    assert read.skips == [(len(read.requests) + 1, "cut-archive")]


def test_damaged_archive_is_told_although_all_of_it_came_out(tmp_path: Path) -> None:
    """Wrong bytes inside show up as bad lines, and for sure in the checksum at the end."""
    rows = b"".join(ids_line(number) + b"\n" for number in range(30_000))
    packed = bytearray(gzip.compress(rows))
    packed[len(packed) // 2 : len(packed) // 2 + 8] = bytes(8)
    read = read_bytes(tmp_path, bytes(packed))

    assert read.skipped[-1].kind == "damaged-archive"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_bomb_is_cut_off_at_the_limit(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    options = ReadOptions(max_decompressed_bytes=2**20)
    read = read_bytes(tmp_path, pack(LOG + bytes(2**26)), options)

    assert read.lines == [1, 2]
    assert [item.kind for item in read.skipped] == ["decompression-limit"]


def test_other_archives_are_not_recognised(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="no log format recognises"):
        read_bytes(tmp_path, bz2.compress(LOG))
