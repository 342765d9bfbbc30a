"""Text logs and tables under random damage: every line is accounted for, neighbours survive."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.core.request import Request
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import ReadOptions
from tests.logs.reading import DATA, read_bytes

SAMPLES = {
    path.name: path.read_bytes()
    for path in sorted((DATA / "samples").iterdir())
    if path.suffix in (".log", ".csv") and path.name.partition(".")[0] in (
        "vllm", "sglang", "azure", "burstgpt", "guidellm", "mapped")
}  # fmt: skip
DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.integers(0, 40),
        st.one_of(
            st.binary(max_size=4),
            st.sampled_from(
                [b"'", b'"', b"\n", b"\r\n", b"\0\0", b"\\", b"[", b")", b", ", b"..."]
            ),
        ),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", list(SAMPLES))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(damages=DAMAGES)
def test_every_line_of_a_damaged_log_is_accounted_for(
    tmp_path: Path, name: str, damages: list[tuple[int, int, bytes]]
) -> None:
    data = SAMPLES[name]
    for place, num_dropped, inserted in damages:
        place %= len(data) + 1
        data = data[:place] + inserted + data[place + num_dropped :]
    options = ReadOptions(log_format=name.partition(".")[0])
    try:
        read = read_bytes(tmp_path, data, options)
    except IncompleteError as error:
        if "no records" in str(error) or "no requests" in str(error) or "empty" in str(error):
            return
        raise
    file = read.stream.files[0]
    lines = {
        number
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip(b" \t\r\0").removeprefix(b"\xef\xbb\xbf") or b"\0" in line
    }
    with_items = {item.source.line for item in read.items}

    assert with_items <= lines
    assert len(lines) <= len(with_items) + file.num_other_lines
    assert read.stream.num_records == len(with_items) or "sglang" in name


def said(request: Request) -> tuple[object, ...]:
    return repr(request.prompt), request.source, request.arrival_s, request.identity


def test_undamaged_neighbours_give_the_same_requests(tmp_path: Path) -> None:
    """A line of vLLM's sample is spoilt, each in turn: all other requests stay as they were."""
    data = SAMPLES["vllm.log"]
    lines = data.split(b"\n")
    whole = {r.request_id: said(r) for r in read_bytes(tmp_path, data).requests}
    for spoilt, line in enumerate(lines):
        if b"Received request" not in line:
            continue
        damaged = [*lines]
        damaged[spoilt] = line[: len(line) // 2]
        read = read_bytes(tmp_path, b"\n".join(damaged))

        assert [item.source.line for item in read.skipped] == [spoilt + 1]
        assert all(said(request) == whole[request.request_id] for request in read.requests)
        assert len(read.requests) == len(whole) - 1
