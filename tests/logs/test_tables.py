"""Tables by a map of their columns; CSV, Parquet and Arrow as containers; Baseten, GuideLLM."""

from __future__ import annotations

import datetime
import io
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prefixaudit.core.request import BlockHashes, ChatMessages, LengthOnly, RawText, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError, UsageError
from prefixaudit.logs import ReadOptions
from prefixaudit.logs._csv_table import split_row
from tests.logs.reading import DATA, Read, read_bytes, read_records

SAMPLES = DATA / "samples"


def mapped(**field_map: str) -> ReadOptions:
    return ReadOptions(field_map=field_map, trace_block_size=16)


def parquet(path: Path, columns: dict[str, Any], row_group_size: int = 2) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def test_columns_that_say_what_they_hold_need_no_map() -> None:
    first, second = Read(SAMPLES / "mapped.csv").requests

    assert first.prompt == RawText(text='Where;\n\n"here"?')
    assert first.arrival_s == 1795962001.0
    assert first.usage.num_prompt_tokens == 6
    assert (first.source.line, second.source.line) == (2, 5)


def test_map_names_any_column_and_goes_into_objects(tmp_path: Path) -> None:
    record = {"q": {"ids": [1, 2]}, "who": {"org": "acme"}, "n": "7", "salt": None}
    options = mapped(prompt_token_ids="q.ids", tenant="who.org", num_prompt_tokens="n",
                     cache_salt="salt")  # fmt: skip
    (request,) = read_bytes(tmp_path, b"%s\n" % str_json(record), options).requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.token_ids.tolist() == [1, 2]
    assert request.identity.tenant == "acme"
    assert request.identity.cache_salt is None
    assert request.usage.num_prompt_tokens == 7


def str_json(record: Any) -> bytes:
    import orjson

    return orjson.dumps(record)


def test_map_reads_json_arrays(tmp_path: Path) -> None:
    data = b'[{"p": "a"},\n {"p": "b"}]'
    read = read_bytes(tmp_path, data, mapped(prompt="p"), name="log.json")

    assert [(r.prompt, r.source.line) for r in read.requests] == [
        (RawText(text="a"), 1),
        (RawText(text="b"), 2),
    ]


def test_field_that_there_isnt_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown field 'promt'.*did you mean 'prompt'"):
        read_bytes(tmp_path, b'{"a": 1}\n', mapped(promt="a"))


@pytest.mark.parametrize("cell", ["[1, 2, 3]", "1 2 3", "1,2,3"])
def test_ids_in_a_cell(tmp_path: Path, cell: str) -> None:
    data = f'ids,x\n"{cell}",1\n'.encode()
    (request,) = read_bytes(tmp_path, data, mapped(prompt_token_ids="ids"), name="a.csv").requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.token_ids.tolist() == [1, 2, 3]


def test_messages_and_bodies_in_cells_are_json(tmp_path: Path) -> None:
    data = (
        b'm,b\n"[{""role"": ""user"", ""content"": ""Hi""}]",\n'
        b',"{""model"": ""x"", ""prompt"": ""p"", ""cache_salt"": ""s""}"\n'
        b'"[{",\n'
    )
    read = read_bytes(tmp_path, data, mapped(messages="m", body="b"), name="a.csv")
    chat, body = read.requests

    assert chat.prompt == ChatMessages(messages=[{"role": "user", "content": "Hi"}])
    assert body.prompt == RawText(text="p")
    assert body.identity.cache_salt == "s"
    assert read.skips == [(4, "invalid-json")]


def test_lengths_alone_are_said_to_be_no_use(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b"n\tx\n5\t1\n", mapped(num_prompt_tokens="n"), name="a.tsv")

    assert read.requests[0].prompt == LengthOnly(num_prompt_tokens=5)
    assert "no reuse can be computed" in read.stream.files[0].notes[0]


def test_empty_cells_say_nothing(tmp_path: Path) -> None:
    (request,) = read_bytes(
        tmp_path, b"p,s,t\na,,\n", mapped(prompt="p", session_id="s", arrival_s="t"), name="a.csv"
    ).requests

    assert request.session_id is UNKNOWN
    assert request.arrival_s is UNKNOWN


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("a,b", ["a", "b"]),
        ('"a,b",c', ["a,b", "c"]),
        ('"a""b",', ['a"b', ""]),
        (",", ["", ""]),
        ('5" disk,b', ['5" disk', "b"]),
        ('"",x', ["", "x"]),
        ('"open,x', None),
        ("", [""]),
    ],
)
def test_row_of_csv(row: str, cells: list[str] | None) -> None:
    assert split_row(row, ",") == cells


def test_lost_quote_costs_its_line_only(tmp_path: Path) -> None:
    rows = [f'"row {number}, quoted",{number}' for number in range(6)]
    rows[2] = rows[2].replace('quoted"', "quoted")
    data = "\n".join(["prompt,n", *rows, ""]).encode()
    read = read_bytes(tmp_path, data, name="a.csv")

    assert read.lines == [2, 3, 5, 6, 7]
    assert [line for line, _ in read.skips] == [4]


def test_rows_of_other_widths_are_skips(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b"prompt,n\na,1\nb\nc,1,2\nd,1\ne", name="a.csv")

    assert read.skips == [(3, "cut-line"), (4, "bad-row"), (6, "cut-tail")]
    assert read.lines == [2, 5]


def test_damaged_bytes_of_csv_are_counted(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfprompt,n\r\na\0\0,1\r\n\xff,1\r\n\0\0\0\n\r\nb,2\r\n"
    read = read_bytes(tmp_path, data, name="a.csv")

    assert read.lines == [2, 6]
    assert read.skips == [(3, "invalid-utf8"), (4, "nul-bytes")]
    assert read.stream.num_repaired == {"nul-bytes": 1}


def test_parquet_is_read_group_by_group(tmp_path: Path) -> None:
    columns = {
        "prompt": ["a", "b", "c"],
        "timestamp": [datetime.datetime(2026, 3, 2, 8, second=s) for s in range(3)],
    }
    read = Read(parquet(tmp_path / "a.parquet", columns))

    assert [r.prompt for r in read.requests] == [RawText(text=t) for t in "abc"]
    # 2026-03-02 08:00:00 UTC
    assert [r.arrival_s for r in read.requests] == [1772438400.0, 1772438401.0, 1772438402.0]
    assert read.stream.num_bytes_read == read.stream.num_bytes_total


def test_nulls_of_a_common_struct_are_no_keys(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": "hi", "tool_calls": None},
                 {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}]]  # fmt: skip
    (request,) = Read(parquet(tmp_path / "a.parquet", {"messages": messages})).requests

    assert request.prompt == ChatMessages(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]},
        ]
    )


def test_cut_parquet_is_one_skip(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"prompt": ["a"] * 1000})
    path.write_bytes(path.read_bytes()[:-30])
    read = Read(path)

    assert [item.kind for item in read.skipped] == ["damaged-archive"]
    assert read.stream.num_records == 1


def test_parquet_comes_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(tmp_path / "a.parquet", {"prompt": ["a", "b", "c"]}).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    read = Read("-")

    assert len(read.requests) == 3


def test_missing_pyarrow_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", {"prompt": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(IncompleteError, match="isn't installed") as caught:
        Read(path)

    assert caught.value.hint == "pip install 'prefixaudit[parquet]'"


def test_baseten_takes_the_text_and_else_the_hashes() -> None:
    first, second = Read(SAMPLES / "baseten.parquet").requests

    assert first.prompt == RawText(text="Where?")
    assert isinstance(second.prompt, BlockHashes)
    assert second.prompt.hash_ids.tolist() == [7, 2**64 - 1]
    assert second.prompt.block_size == 32
    assert (first.session_id, second.session_id) == ("s", "5")
    assert second.arrival_s == 1772438401.5
    assert first.usage.num_prompt_tokens == 6


def test_arrow_files_are_read_like_parquet(tmp_path: Path) -> None:
    table = pq.read_table(SAMPLES / "baseten.parquet")
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    read = Read(path)

    assert read.stream.files[0].format_name == "baseten"
    assert read.requests[0].prompt == RawText(text="Where?")
    assert len(read.requests) == 2


@pytest.mark.parametrize("name", ["guidellm.jsonl", "guidellm.rows.csv"])
def test_guidellm_rows_have_their_counts(name: str) -> None:
    (request,) = Read(SAMPLES / name).requests

    assert isinstance(request.prompt, RawText)
    assert request.usage.num_prompt_tokens == 3
    assert request.usage.num_completion_tokens == 5


def test_json_lines_without_a_known_shape_need_a_map(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="no log format recognises"):
        read_records(tmp_path, {"utterance": "a"})


def test_folder_is_read_by_a_map_without_its_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("p,n\nx,1\n")
    parquet(tmp_path / "b.parquet", {"p": ["y"]})
    (tmp_path / "README.md").write_text("p\n")
    read = Read(tmp_path, options=mapped(prompt="p"))

    assert [r.prompt for r in read.requests] == [RawText(text="x"), RawText(text="y")]
    assert [Path(file.path).name for file in read.stream.ignored_files] == ["README.md"]


def test_times_that_python_doesnt_have_end_the_file(tmp_path: Path) -> None:
    times = pa.array([0, 2**62], pa.timestamp("ms"))
    read = Read(parquet(tmp_path / "a.parquet", {"prompt": ["x", "y"], "timestamp": times}, 1))

    assert [r.prompt for r in read.requests] == [RawText(text="x")]
    assert [item.kind for item in read.skipped] == ["damaged-archive"]
