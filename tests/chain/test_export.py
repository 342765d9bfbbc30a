"""An export is the same log to a pool, and says nothing else about it."""

from __future__ import annotations

import io
import zipfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain.export import anonymized, is_trace_file, load_key, read_trace, write_trace
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import ConfigurationError, IncompleteError
from tests.chain.prompts import build, hash_prompt, paths, token_prompt

KEY = b"sixteen bytes or more"
values = st.sampled_from([UNKNOWN, None, "a", "b"])
token_logs = st.lists(
    st.builds(
        token_prompt,
        st.lists(st.integers(0, 1), max_size=12),
        answer=st.none() | st.lists(st.integers(0, 1), max_size=6),
        identity=st.builds(Identity, tenant=values, model=values),
        session=values,
        arrival_s=st.just(UNKNOWN) | st.floats(0, 2e9),
        reads_cache=st.booleans(),
    ),
    max_size=10,
)
hash_logs = st.lists(
    st.builds(
        lambda ids, missing: hash_prompt(ids, max(0, 512 * len(ids) - missing)),
        st.lists(st.integers(0, 2), min_size=1, max_size=6),
        st.integers(0, 511),
    ),
    max_size=10,
)


def written(trace: BlockTrace, key: bytes | None = None) -> bytes:
    file = io.BytesIO()
    write_trace(trace, file, key=key)
    return file.getvalue()


def read(content: bytes, folder: Path) -> BlockTrace:
    path = folder / "trace.zip"
    path.write_bytes(content)
    return read_trace(path)


def assert_equal(one: BlockTrace, two: BlockTrace) -> None:
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(two, field.name)
        if field.name == "tree":
            for part in fields(left):
                np.testing.assert_array_equal(getattr(left, part.name), getattr(right, part.name))
        elif isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right)
            assert left.dtype == right.dtype
        else:
            assert left == right


@settings(max_examples=100, deadline=None)
@given(token_logs | hash_logs)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, log: list[Prompt]
) -> None:
    trace = build(log)

    back = read(written(trace, KEY), tmp_path_factory.mktemp("export"))

    assert_equal(back, anonymized(trace, key=KEY))


@settings(max_examples=50, deadline=None)
@given(token_logs | hash_logs)
def test_anonymous_traces_share_what_the_trace_shares(log: list[Prompt]) -> None:
    trace = build(log)

    anonymous = anonymized(trace)

    assert paths(anonymous) == paths(trace)
    assert len(np.unique(anonymous.tree.labels, axis=0)) == len(
        np.unique(trace.tree.labels, axis=0)
    )
    for name in IDENTITY_FIELDS:
        assert (anonymous.namespaces((name,)) == trace.namespaces((name,))).all()
    assert (anonymous.replay_order() == trace.replay_order()).all()


def test_nothing_of_who_or_what_is_in_the_file() -> None:
    """A canary in every field that names somebody, and the labels of the prompt itself."""
    canaries = {name: f"canary-{name}" for name in IDENTITY_FIELDS}
    trace = build(
        [
            token_prompt(
                range(8),
                name="canary-request",
                session="canary-session",
                identity=Identity(**canaries),
                arrival_s=1_700_000_000.0,
            ),
            token_prompt(range(4), arrival_s=1_700_000_001.5),
        ]
    )
    content = written(trace)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = b"".join(archive.read(name) for name in archive.namelist())
        times = np.frombuffer(archive.read("requests/arrival_s"), dtype="<f8")
    plain = {"model", "dtype", "quantization", "kv_cache_dtype", "attention"}

    found = {name for name in IDENTITY_FIELDS if f'"canary-{name}"'.encode() in unpacked}

    assert found == plain
    assert unpacked.count(b"canary") == len(plain)
    assert trace.tree.labels[0].tobytes() not in unpacked
    assert times.tolist() == [0.0, 1.5]


def test_equal_values_of_two_fields_are_not_alike_in_an_export() -> None:
    trace = build([token_prompt([1], identity=Identity(tenant="x", user="x"))])

    [identity] = anonymized(trace).identities

    assert identity.tenant != identity.user


def test_random_secret_differs_each_time_and_a_key_does_not() -> None:
    trace = build([token_prompt(range(8)), hash_prompt([1, 2], 6, block_size=4)], block_size=4)

    assert written(trace, KEY) == written(trace, KEY)
    assert not np.intersect1d(anonymized(trace).tree.labels, anonymized(trace).tree.labels).size
    assert not np.intersect1d(
        anonymized(trace, key=KEY).tree.labels, anonymized(trace, key=KEY + b"!").tree.labels
    ).size


def test_labels_under_a_key_do_not_depend_on_the_rest_of_the_log() -> None:
    one = anonymized(build([token_prompt(range(8))]), key=KEY)
    two = anonymized(build([token_prompt([9] * 8), token_prompt(range(8))]), key=KEY)

    assert (one.tree.labels == two.tree.labels[2:]).all()


def test_key_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    environment = {"PREFIXAUDIT_EXPORT_KEY": "another sixteen bytes"}

    assert load_key(path, environment) == KEY
    assert load_key(None, environment) == b"another sixteen bytes"
    assert load_key(None, {}) is None


def test_short_and_missing_keys_are_refused_without_showing_them(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"hush")

    with pytest.raises(ConfigurationError, match=r"a key of 4 bytes; expected 16") as caught:
        load_key(path, {})
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="No such file"):
        load_key(tmp_path / "none", {})


def test_start_of_an_export_is_recognised() -> None:
    content = written(build([]))

    assert is_trace_file(content[:100])
    assert not is_trace_file(b'{"timestamp": 0}')


SAMPLE = build([token_prompt(range(12)), token_prompt([*range(8), 9, 9, 9, 9])])


def repacked(**changes: bytes | None) -> bytes:
    """Return the sample's file with entries replaced (None: left out); __ stands for /."""
    changed = {name.replace("__", "/"): raw for name, raw in changes.items()}
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(written(SAMPLE, KEY))) as old,
        zipfile.ZipFile(file, "w") as new,
    ):
        for name in old.namelist():
            raw = changed.get(name, old.read(name))
            if raw is not None:
                new.writestr(name, raw)
    return file.getvalue()


def header(**changes: object) -> bytes:
    with zipfile.ZipFile(io.BytesIO(written(SAMPLE, KEY))) as archive:
        return orjson.dumps({**orjson.loads(archive.read("header.json")), **changes})


def numbers(kind: str, *values: int) -> bytes:
    return np.array(values, dtype=kind).tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable archive"),
        (written(SAMPLE)[:-30], "not a readable archive"),
        (repacked(**{"header.json": None}), "`header.json` is missing"),
        (repacked(**{"header.json": b"{"}), "is no JSON"),
        (repacked(**{"header.json": b"[]"}), "not an export"),
        (repacked(**{"header.json": header(version=2)}), "an export of another version"),
        (repacked(**{"header.json": header(num_blocks=-1)}), "`num_blocks` is out of range"),
        (repacked(**{"header.json": header(num_blocks=2**31 - 1)}), "bytes of columns, more than"),
        (repacked(**{"header.json": header(num_requests=2.0)}), "`num_requests` is out of range"),
        (repacked(**{"header.json": header(num_requests=3)}), "instead of"),
        (repacked(**{"header.json": header(block_size=0)}), "`block_size` is out of range"),
        (repacked(**{"header.json": header(block_size=5)}), "`num_blocks` of request 0"),
        (repacked(**{"header.json": header(identities=[])}), "`identity` of request 0"),
        (repacked(**{"header.json": header(identities=[{"tenant": 1}])}), "are no identities"),
        (repacked(**{"header.json": header(identities=[{"who": "x"}])}), "are no identities"),
        (repacked(tree__labels=None), "`tree/labels` is missing"),
        (repacked(tree__labels=bytes(999)), "more than 64"),
        (repacked(tree__labels=bytes(64)), "the tree of blocks contradicts itself"),
        (repacked(tree__parent=numbers("<i4", -1, 1, 0)), "the tree of blocks contradicts itself"),
        (repacked(tree__num_blocks=numbers("<i4", 2, 0, 2)), "the tree of blocks contradicts"),
        (repacked(requests__node=numbers("<i4", 1, 7)), "`node` of request 1"),
        (repacked(requests__node=numbers("<i4", 1, 0)), "`num_blocks` of request 1"),
        (repacked(requests__session=numbers("<i4", -2, 0)), "`session` of request 0"),
        (repacked(requests__reads_cache=b"\x01\x02"), "holds neither true nor false"),
        (repacked(requests__has_partial_id=b"\x01\x00"), "`has_partial_id` of request 0"),
        (repacked(requests__num_prompt_tokens=numbers("<i8", -12, 12)), "`num_prompt_tokens`"),
    ],
)
def test_a_wrong_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match=message):
        read(content, tmp_path)


def test_the_repacked_sample_itself_is_right(tmp_path: Path) -> None:
    assert_equal(read(repacked(), tmp_path), anonymized(SAMPLE, key=KEY))


def test_damage_anywhere_is_an_error_and_never_a_crash(tmp_path: Path) -> None:
    """Every tenth byte turned over, one at a time: refused, or the same trace after all."""
    content = written(SAMPLE, KEY)
    expected = anonymized(SAMPLE, key=KEY)
    for place in range(0, len(content), 10):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        try:
            back = read(bytes(damaged), tmp_path)
        except IncompleteError:
            continue
        assert_equal(back, expected)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="No such file"):
        read_trace(tmp_path / "none")
