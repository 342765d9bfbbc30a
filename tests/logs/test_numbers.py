"""Whole numbers of any size come out of logs as they went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.core.request import ChatMessages
from prefixaudit.logs._numbers import holds_big_integer, loads, may_hold_long_numbers
from tests.logs.reading import read_bytes


@given(st.integers(-(2**300), 2**300), st.text(max_size=30), st.text(max_size=30))
def test_any_whole_number_comes_back(number: int, before: str, after: str) -> None:
    value = {"a": before, "n": [number], "z": after}
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")

    assert loads(text) == value


@pytest.mark.parametrize("number", [-(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**19, -(10**19)])
@pytest.mark.parametrize("num_spaces", range(5))
def test_bounds_of_64_bits(number: int, num_spaces: int) -> None:
    """The number may start anywhere between the bytes that are looked at first."""
    text = b" " * num_spaces + str(number).encode()

    assert loads(text) == number
    assert may_hold_long_numbers(text)
    assert holds_big_integer(text) == (not -(2**63) <= number < 2**64)


@pytest.mark.parametrize("text", [b"0.12345678901234567890123", b"1e400", b"9" * 20 + b"e3"])
def test_floats_are_no_big_integers(text: bytes) -> None:
    assert not holds_big_integer(text)


@pytest.mark.parametrize("quoted", [False, True])
def test_tool_schema_keeps_its_limit(tmp_path: Path, quoted: bool) -> None:
    """The body may be an object, or text that holds one."""
    limit = 10**30
    body: Any = {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": {"parameters": {"maximum": limit}}}],
    }
    record = {"request_id": "r", "body": json.dumps(body) if quoted else body}
    small = b'{"request_id": "s", "body": {"prompt": "b"}}\n'

    read = read_bytes(tmp_path, small + json.dumps(record).encode() + b"\n" + small)

    prompt = read.requests[1].prompt
    assert isinstance(prompt, ChatMessages)
    assert prompt.tools is not None
    assert prompt.tools[0]["function"]["parameters"]["maximum"] == limit
    assert len(read.requests) == 3


def test_number_of_more_digits_than_python_takes_is_counted(tmp_path: Path) -> None:
    good = b'{"request_id": "s", "body": {"prompt": "b"}}\n'
    huge = b'{"request_id": "h", "body": {"prompt": "b", "seed": ' + b"9" * 5000 + b"}}\n"

    read = read_bytes(tmp_path, good + huge + good)

    assert read.lines == [1, 3]
    assert read.skips == [(2, "invalid-json")]


def test_half_a_surrogate_beside_a_big_number_is_still_no_text() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(b'{"a": "\\ud800", "n": 100000000000000000000000}')
