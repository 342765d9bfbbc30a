"""Records of one big JSON document, with their lines, in bounded memory."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.request import TokenIds
from prefixaudit.logs import ReadOptions
from prefixaudit.logs._documents import Element, elements, is_document
from prefixaudit.logs._lines import LostLine
from tests.logs.reading import Read, ids_record, read_bytes

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.sampled_from(['"', '\\"{', "]}", "\\"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)
_RECORDS = st.lists(st.dictionaries(st.text(), _JSON, max_size=3), min_size=1, max_size=6)


def cut(data: bytes, size: int, max_bytes: int = 10**6) -> list[Element | LostLine]:
    blocks = iter([data[place : place + size] for place in range(0, len(data), size)])
    return list(elements(blocks, max_bytes))


@settings(max_examples=150, deadline=None)
@given(
    records=_RECORDS,
    indent=st.sampled_from([None, 0, 2]),
    wrapper=st.sampled_from([None, "data", "resourceSpans"]),
    size=st.integers(1, 40),
)
def test_elements_of_a_document_are_those_that_json_finds(
    records: list[Any], indent: int | None, wrapper: str | None, size: int
) -> None:
    value = records if wrapper is None else {"meta": {"n": [{}]}, wrapper: records, "page": 1}
    data = json.dumps(value, indent=indent).encode()
    found = cut(data, size)

    assert all(isinstance(item, Element) for item in found)
    assert [json.loads(item.data) for item in found if isinstance(item, Element)] == records
    lines = data.split(b"\n")
    assert all(b"{" in lines[item.line - 1] for item in found)


def test_every_array_that_an_object_wraps_is_read() -> None:
    data = b'{"traces": [{"a": 1}], "x": {"data": [{"no": 1}]}, "observations": [{"b": 2}]}'

    assert [item.data for item in cut(data, 5) if isinstance(item, Element)] == [
        b'{"a": 1}',
        b'{"b": 2}',
    ]


def pretty(*records: Any) -> bytes:
    return json.dumps(list(records), indent=2).encode()


def test_array_of_records_is_read_with_the_lines_of_its_elements(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, pretty(ids_record(1), ids_record(2)), name="log.json")

    assert [request.request_id for request in read.requests] == ["r1", "r2"]
    # `[` is line 1; a record takes 8: braces, id, and the ids with their brackets
    assert read.lines == [2, 10]
    assert read.stream.num_records == 2


@pytest.mark.parametrize("glue", [b"\n", b""])
def test_array_on_one_line_is_read(tmp_path: Path, glue: bytes) -> None:
    data = json.dumps([ids_record(1), ids_record(2)]).encode() + glue

    assert read_bytes(tmp_path, data).lines == [1, 1]


def test_one_pretty_printed_record_is_one_record(tmp_path: Path) -> None:
    data = json.dumps(ids_record(1), indent=1).encode()

    assert read_bytes(tmp_path, data).lines == [1]


def test_broken_element_costs_itself_only(tmp_path: Path) -> None:
    whole = pretty(*map(ids_record, range(4)))
    broken = whole.replace(b'"request_id": "r1"', b'"request_id": "r1')
    read = read_bytes(tmp_path, broken)

    assert [request.request_id for request in read.requests] == ["r0", "r2", "r3"]
    assert [kind for _, kind in read.skips] == ["invalid-json"]


def test_cut_document_says_that_its_last_record_is_cut(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, pretty(ids_record(1), ids_record(2))[:-20])

    assert (read.lines, read.skips) == ([2], [(10, "cut-tail")])


def test_document_comes_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = json.dumps([ids_record(number) for number in range(20_000)]).encode()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    read = Read(pipe)
    writer.join()

    assert len(data) > 2**20  # more than a block
    assert len(read.requests) == 20_000


def test_large_numbers_in_elements_stay_whole_numbers(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, pretty({"prompt_token_ids": [1], "x": 10**30}))

    assert isinstance(read.requests[0].prompt, TokenIds)
    assert read.requests[0].record["x"] == 10**30


def test_element_that_is_too_long_is_measured_in_bounded_memory() -> None:
    def blocks() -> Iterator[bytes]:
        yield b'[{"a": 1},\n{"messages": ['
        for _ in range(100):
            yield block
        yield b'""]},\n{"b": 2}]'

    block = (b'"' + b"x" * 997 + b'",') * 1000
    tracemalloc.start()
    found = list(elements(blocks(), 4 * 10**6))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [type(item) for item in found] == [Element, LostLine, Element]
    assert isinstance(found[1], LostLine)
    assert (found[1].line, found[1].kind) == (2, "line-too-long")
    # 13 of `{"messages": ` and its bracket, the blocks, and 4 of `""]}`
    assert f"{14 + 100 * len(block) + 4} bytes" in found[1].reason
    assert peak < 20 * 10**6


def test_string_that_is_too_long_is_dropped_up_to_the_next_record() -> None:
    data = b'[\n  {"a": 1},\n  {"b": "' + b"x" * 5000 + b'"},\n  {"c": 2}\n]'

    found = cut(data, 100, max_bytes=1000)

    assert [type(item) for item in found] == [Element, LostLine, Element]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'[{"a": 1}]', True),
        (b'[\n  {\n    "a": 1\n  }\n]', True),
        (b'\xef\xbb\xbf [ {"a": 1}', True),
        (b'{\n  "a": 1\n}', True),
        (b'{"data": [\n{"a": 1},\n{"a": 2}\n]}', True),
        (b'{"a": 1}\n{"a": 2}\n', False),
        (b'{"a": "cut here,\n{"a": 2}\n', False),
        (b'{"a": [\n{"a": 2}\n{"a": 3}\n', False),
        (b'{"a": 1,\n{"a": 2}\n{"a": 3}\n', False),
        (b"[1, 2]\n[3]\n", False),
        (b"INFO 11-29 14:20:01 started\n", False),
    ],
)
def test_document_is_told_from_lines(head: bytes, expected: bool) -> None:
    assert is_document(head, is_whole=True) is expected


def test_documents_come_through_archives_and_byte_order_marks(tmp_path: Path) -> None:
    import gzip

    data = "\ufeff" + pretty(ids_record(1)).decode()
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress(data.encode("utf-16-le")))

    assert Read(path, options=ReadOptions()).lines == [2]
