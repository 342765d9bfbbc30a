"""Each format's sample is recognised as itself and as nothing else.

A sample is a file `data/samples/NAME.*`, NAME a format's with `_`; a format may have several.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.logs import LOG_FORMATS, ReadOptions
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._stream import _sample
from tests.logs.reading import DATA, Read

SAMPLES = sorted((DATA / "samples").iterdir())


def format_of(path: Path) -> str:
    return path.name.partition(".")[0].replace("_", "-")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_sample_is_recognised_as_itself(path: Path) -> None:
    read = Read(path)

    assert read.stream.files[0].format_name == format_of(path)
    assert read.requests


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_no_other_format_is_as_sure_of_a_sample(path: Path) -> None:
    sample, _ = _sample(LogFile(str(path), ReadOptions()))
    sure = {name: log_format.recognise(sample) for name, log_format in LOG_FORMATS.items()}
    own = sure.pop(format_of(path))

    assert all(other < own for other in sure.values()), sure


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_records_of_a_sample_are_requests_or_skipped_or_set_aside(path: Path) -> None:
    """Records that give several requests share a line and a kind of id with their first."""
    read = Read(path)
    file = read.stream.files[0]
    spans_in_a_line = file.format_name in ("otel-genai", "langfuse")
    lines = {item.source.line for item in read.items}
    num_with_items = len(read.items) if spans_in_a_line else len(lines)

    assert num_with_items + sum(file.set_aside.values()) == file.num_records


def test_every_format_has_a_title_and_fields() -> None:
    for name, log_format in LOG_FORMATS.items():
        assert log_format.title, name
        assert log_format.fields, name
