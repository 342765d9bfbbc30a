"""Conservation: of 200 randomly damaged copies of each sample no record is lost, no neighbour hurt.

Records that a file has are read, skipped, or set aside for another record (an answer whose request
stands elsewhere); a line that is put between them costs itself alone.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixaudit.core.request import BlockHashes, Request, TokenIds
from prefixaudit.logs import ReadOptions
from tests.logs.reading import DATA, Read

SAMPLES = sorted((DATA / "samples").iterdir())
LINES = [path for path in SAMPLES if path.suffix == ".jsonl"]
NUM_COPIES = 200
# One physical record of these (a line of spans, an object of observations) is several.
SPANS = ("otel-genai", "langfuse")
_OWN_PLACE = re.compile(r":\d+\b")


def format_of(path: Path) -> str:
    return path.name.partition(".")[0].replace("_", "-")


def read(path: Path, data: bytes, tmp_path: Path, *, year: int | None = 2026) -> Read:
    copy = tmp_path / path.name
    copy.write_bytes(data)
    return Read(copy, options=ReadOptions(log_format=format_of(path), year=year))


def said(request: Request) -> tuple[Any, ...]:
    """What a request says, without where it stands."""
    prompt: Any = request.prompt
    if isinstance(prompt, TokenIds):
        prompt = (prompt.token_ids.tobytes(), prompt.media)
    elif isinstance(prompt, BlockHashes):
        prompt = (prompt.hash_ids.tobytes(), prompt.block_size, prompt.num_prompt_tokens)
    generated: Any = request.generated
    if isinstance(generated, TokenIds):
        generated = generated.token_ids.tobytes()
    return (
        _OWN_PLACE.sub("", request.request_id), repr(prompt), repr(generated), request.arrival_s,
        request.identity, request.usage, request.session_id, request.endpoint,
    )  # fmt: skip


def lost(read: Read) -> int:
    """Records that were skipped, and lines of a text log that are no record."""
    return len(read.skipped) + sum(file.num_other_lines for file in read.stream.files)


def junk(lines: list[bytes], rng: random.Random) -> bytes:
    """A line that is no record: bytes that are no text, half of a record, NULs, nonsense."""
    line = rng.choice([line for line in lines if line])
    kind = rng.randrange(5)
    if kind == 0:
        return line[: rng.randrange(1, max(2, len(line) - 1))]
    if kind == 1:
        place = rng.randrange(len(line))
        return line[:place] + rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80"]) + line[place:]
    if kind == 2:
        return b"\0" * rng.randrange(1, 500)
    if kind == 3:
        return b"{" + rng.randbytes(20).replace(b"\n", b" ").replace(b"\0", b" ")
    return b'{"a":' * 2000


@pytest.mark.parametrize("path", LINES, ids=lambda path: path.name)
def test_junk_between_records_costs_itself_alone(path: Path, tmp_path: Path) -> None:
    rng = random.Random(path.name)
    lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    whole = [said(request) for request in read(path, path.read_bytes(), tmp_path).requests]
    num_lost = lost(read(path, path.read_bytes(), tmp_path))

    for _ in range(NUM_COPIES):
        copy = list(lines)
        num_junk = rng.randint(1, 3)
        for _ in range(num_junk):
            copy.insert(rng.randrange(len(copy)), junk(lines, rng))
        damaged = read(path, b"\n".join(copy) + b"\n", tmp_path)

        assert [said(request) for request in damaged.requests] == whole
        assert lost(damaged) == num_lost + num_junk


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_records_add_up_whatever_is_damaged(path: Path, tmp_path: Path) -> None:
    from prefixaudit.errors import PrefixAuditError

    rng = random.Random(path.name)
    data = path.read_bytes()
    for _ in range(NUM_COPIES):
        copy = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(copy))
            if rng.random() < 0.5:
                copy[place] = rng.randrange(256)
            else:
                del copy[place : place + rng.choice([1, 5, 60])]
        try:
            damaged = read(path, bytes(copy), tmp_path)
        except PrefixAuditError:
            continue  # nothing of it can be read, and that is said
        [file] = damaged.stream.files
        num_items = len({item.source.line for item in damaged.items})
        num_set_aside = sum(file.set_aside.values())
        # Records glued together stand on one line; a record may give several requests.
        assert num_items + num_set_aside <= file.num_records
        assert file.num_records <= len(damaged.items) + num_set_aside
        if path.suffix == ".jsonl" and format_of(path) not in SPANS:
            with_content = {
                number
                for number, line in enumerate(bytes(copy).split(b"\n"), 1)
                if line.strip(b" \t\r").removeprefix(b"\xef\xbb\xbf")
            }
            assert {item.source.line for item in damaged.items} <= with_content
            assert file.num_records + file.num_other_lines >= len(with_content)


def test_arrays_are_compared_by_their_content() -> None:
    """The comparison above would pass for anything if ids were left out."""
    first, second = (
        Request(
            request_id="r",
            source=None,  # type: ignore[arg-type]
            prompt=TokenIds(token_ids=np.array(ids, dtype=np.uint32)),
        )
        for ids in ([1, 2], [1, 3])
    )

    assert said(first) != said(second)
