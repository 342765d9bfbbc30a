"""LMCache's agent traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.core.request import RawText
from tests.logs.reading import SHARED, Read, read_records


def test_flattened_text_is_the_raw_prompt(tmp_path: Path) -> None:
    (request,) = read_records(
        tmp_path,
        {"timestamp": 1760995776640783, "input": "user: a", "output": "b", "session_id": "s"},
    ).requests

    assert request.prompt == RawText(text="user: a", add_special_tokens=False)
    assert request.generated == RawText(text="b", add_special_tokens=False)
    assert (request.arrival_s, request.session_id) == (1760995776.640783, "s")


def test_public_traces_are_recognised() -> None:
    """1,619 records and 1,550 pairs of successive ones, so 69 sessions: a file each."""
    folder = SHARED / "traces" / "lmcache-agent"
    if not folder.exists():
        pytest.skip("the public traces aren't here")
    read = Read(folder)

    assert {file.format_name for file in read.stream.files} == {"lmcache-agent"}
    assert len(read.stream.files) == 1619 - 1550
    assert len({request.session_id for request in read.requests}) == 1619 - 1550
    assert len(read.requests) == read.stream.num_records == 1619
