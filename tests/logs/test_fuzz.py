"""Every reader, on any JSON at all: no crash, no lost record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.errors import IncompleteError
from prefixaudit.logs import LOG_FORMATS, ReadOptions
from tests.logs.reading import read_bytes

_KEYS = st.sampled_from(
    [
        "body", "messages", "prompt", "prompt_token_ids", "hash_ids", "input_length", "timestamp",
        "response", "usage", "choices", "message", "delta", "prompt_tokens_details", "headers",
        "lora", "instance", "model", "path", "status", "system", "content", "type", "text", "n",
        "session_id", "output_token_ids", "input", "output", "cached_tokens", "tools", "index",
        "input_ids", "token_ids", "chat_template_kwargs", "request_id", "truncate_prompt_tokens",
    ]
)  # fmt: skip
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**64 - 1), st.floats(allow_nan=False), st.text(),
    st.sampled_from(["/v1/messages", "/v1/completions", '{"prompt": [1]}', "data: {}"]),
)  # fmt: skip
_VALUES: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=6)),
    max_leaves=25,
)
_RECORDS = st.lists(st.dictionaries(_KEYS, _VALUES, max_size=8), min_size=1, max_size=4)


def _num_records(document: bytes) -> int:
    """Count the records of a JSON array, or of an object; 1 where it is damaged."""
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError:
        return 1
    return len(value) if isinstance(value, list) else 1


@pytest.mark.parametrize("name", list(LOG_FORMATS))
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(records=_RECORDS, flip=st.tuples(st.integers(0, 10**4), st.binary(max_size=3)))
def test_reader_loses_no_record_of_any_json(
    tmp_path: Path, name: str, records: list[Any], flip: tuple[int, bytes]
) -> None:
    data = b"\n".join([*map(orjson.dumps, records), b""])
    place = flip[0] % len(data)
    for damaged in (data, data[:place] + flip[1] + data[place:]):
        options = ReadOptions(log_format=name, trace_block_size=16)
        try:
            read = read_bytes(tmp_path, damaged, options)
        except IncompleteError as error:
            # A server's log may hold nothing about requests.
            if "no records" in str(error) or "no requests" in str(error):
                continue
            raise
        file = read.stream.files[0]
        with_items = {item.source.line for item in read.items}
        lines = {
            number
            for number, line in enumerate(damaged.split(b"\n"), 1)
            if line.strip(b" \t\r\0").removeprefix(b"\xef\xbb\xbf") or b"\0" in line
        }
        num_aside = sum(file.set_aside.values()) + file.num_other_lines

        assert with_items <= lines
        assert read.stream.num_records >= len(with_items)
        if file.layout == "document":  # a line feed within braces: one record on several lines
            assert read.stream.num_records + num_aside >= _num_records(damaged)
            continue
        assert read.stream.num_records + file.num_other_lines >= len(lines)
        assert len(lines) <= len(with_items) + num_aside
