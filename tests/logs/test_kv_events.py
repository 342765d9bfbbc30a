"""KV events of vLLM, SGLang and LMCache: what a pool holds at the end of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.core.request import TokenIds
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError
from prefixaudit.logs.kv_events import PoolContents, read_pool_contents


def stored(
    hashes: list[Any], tokens: list[int], parent: Any = None, *rest: Any, size: int = 4
) -> list[Any]:
    """A BlockStored as an array; `rest` is lora_id, medium, lora_name, extra_keys, …"""
    return ["BlockStored", hashes, parent, tokens, size, *(rest or (None,))]


def packed(folder: Path, *batches: Any) -> PoolContents:
    path = folder / "events.msgpack"
    path.write_bytes(b"".join(msgpack.packb(batch) for batch in batches))
    return read_pool_contents(str(path))


def lines(folder: Path, *batches: Any) -> PoolContents:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps(batch) + b"\n" for batch in batches))
    return read_pool_contents(str(path))


def prefixes(contents: PoolContents) -> list[list[int]]:
    return [prefix.token_ids.tolist() for prefix in contents.prefixes]


ROOT = stored([1, 2], list(range(8)))
LEFT = stored([3], [10, 11, 12, 13], 2)
RIGHT = stored([4], [20, 21, 22, 23], 2)


def test_prefixes_are_the_leaves_of_the_tree_the_latest_last(tmp_path: Path) -> None:
    contents = packed(tmp_path, [1.0, [ROOT, RIGHT]], [2.0, [LEFT], 0])

    assert prefixes(contents) == [
        [*range(8), 20, 21, 22, 23],
        [*range(8), 10, 11, 12, 13],
    ]
    assert [prefix.num_new_tokens for prefix in contents.prefixes] == [12, 4]
    assert (contents.num_blocks, contents.block_size, contents.num_events) == (4, 4, 3)


def test_maps_and_arrays_and_json_say_the_same(tmp_path: Path) -> None:
    """vLLM 0.33 encodes events as maps with a `type`, earlier ones as arrays."""
    as_map = {"type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None,
              "token_ids": list(range(8)), "block_size": 4, "lora_id": None, "medium": "GPU",
              "lora_name": None}  # fmt: skip
    removed = {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU"}

    for read in (packed, lines):
        contents = read(tmp_path, [1.0, [as_map, removed]])
        assert prefixes(contents) == [[0, 1, 2, 3]]
        array = read(tmp_path, [1.0, [[*ROOT[:5], None, "GPU"], ["BlockRemoved", [2], "GPU"]]])
        assert prefixes(array) == [[0, 1, 2, 3]]
    named = lines(tmp_path, {"ts": 1.0, "events": [as_map]})
    single = lines(tmp_path, as_map, removed)

    assert prefixes(named) == [list(range(8))]
    assert prefixes(single) == [[0, 1, 2, 3]]


def test_frames_of_the_socket_are_unpacked(tmp_path: Path) -> None:
    frame = [b"kv-events", (7).to_bytes(8, "big"), msgpack.packb([1.0, [ROOT]])]

    assert prefixes(packed(tmp_path, frame)) == [list(range(8))]


@pytest.mark.parametrize("block_hash", [b"\x01" * 32, "ab12", 2**63 + 5, -7])
def test_hashes_are_numbers_bytes_or_text(tmp_path: Path, block_hash: Any) -> None:
    child = stored([99], [9, 9, 9, 9], block_hash)
    contents = packed(tmp_path, [1.0, [stored([block_hash], [1, 2, 3, 4]), child]])

    assert prefixes(contents) == [[1, 2, 3, 4, 9, 9, 9, 9]]


def test_blocks_behind_a_removed_one_are_out_of_reach(tmp_path: Path) -> None:
    contents = packed(tmp_path, [1.0, [ROOT, LEFT, ["BlockRemoved", [1]]]])

    assert contents.prefixes == ()
    assert (contents.num_blocks, contents.num_unreachable_blocks) == (2, 2)
    assert contents.num_unrooted_blocks == 0


def test_blocks_behind_what_the_dump_doesnt_have_are_unrooted(tmp_path: Path) -> None:
    contents = packed(tmp_path, [1.0, [LEFT]])

    assert (contents.num_blocks, contents.num_unrooted_blocks) == (1, 1)


def test_clearing_empties_the_pool(tmp_path: Path) -> None:
    contents = packed(tmp_path, [1.0, [ROOT, ["AllBlocksCleared"], stored([7], [1, 1, 1, 1])]])

    assert prefixes(contents) == [[1, 1, 1, 1]]


def test_removal_from_the_gpu_leaves_the_copy_on_the_cpu(tmp_path: Path) -> None:
    gpu = stored([1], [1, 2, 3, 4], None, None, "GPU")
    cpu = stored([1], [1, 2, 3, 4], None, None, "CPU")
    other = stored([5], [5, 5, 5, 5], None, None, "GPU")
    contents = packed(tmp_path, [1.0, [gpu, cpu, other, ["BlockRemoved", [1], "GPU"]]])

    assert prefixes(contents) == [[5, 5, 5, 5]]
    assert contents.num_other_media_blocks == 1


def test_group_of_full_attention_is_the_pool(tmp_path: Path) -> None:
    def of_group(group: int, kind: str, token: int) -> list[Any]:
        return stored([1], [token] * 4, None, None, "GPU", None, None, group, kind)

    contents = packed(
        tmp_path, [1.0, [of_group(0, "sliding_window", 7), of_group(1, "full_attention", 8)]]
    )

    assert prefixes(contents) == [[8, 8, 8, 8]]


def test_requests_warm_a_pool_in_order(tmp_path: Path) -> None:
    salted = stored([5], [5, 5, 5, 5], None, 3, "GPU", "legal", [["legal", "salt"]])
    plain = stored([6], [6, 6, 6, 6], None, None, "GPU", None, [None])
    first, second = packed(tmp_path, [1.0, [salted, plain]]).requests()

    assert isinstance(first.prompt, TokenIds)
    assert first.prompt.token_ids.tolist() == [5, 5, 5, 5]
    assert first.identity.lora_name == "legal"
    assert first.identity.cache_salt is UNKNOWN
    assert (second.identity.lora_name, second.identity.cache_salt) == (None, None)


def test_damage_is_counted_and_what_was_before_it_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.msgpack"
    whole = msgpack.packb([1.0, [ROOT, ["BlockStored", [8], None, [1, 2], 4, None], ["What"]]])
    path.write_bytes(whole + msgpack.packb([2.0, [LEFT]])[:-3])
    contents = read_pool_contents(str(path))

    assert prefixes(contents) == [list(range(8))]
    assert contents.num_unreadable == {"bad-field": 1, "no-event": 1, "cut-tail": 1}


def test_file_without_events_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="no KV events"):
        lines(tmp_path, {"prompt": "a"})


def test_long_chain_needs_no_recursion(tmp_path: Path) -> None:
    events = [stored([n + 1], [n, n, n, n], n or None) for n in range(5000)]
    contents = packed(tmp_path, [1.0, events])

    assert len(contents.prefixes) == 1
    assert len(contents.prefixes[0].token_ids) == 20_000


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.binary(max_size=4),
        st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU", "x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=9),
        st.dictionaries(
            st.sampled_from(["type", "events", "ts", "block_hashes", "token_ids", "block_size",
                             "parent_block_hash", "medium", "extra_keys"]), inner, max_size=7,
        ),
    ),
    max_leaves=30,
)  # fmt: skip


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(messages=st.lists(_VALUES, min_size=1, max_size=4), rest=st.binary(max_size=8))
def test_any_messages_at_all_are_read_or_counted(
    tmp_path: Path, messages: list[Any], rest: bytes
) -> None:
    path = tmp_path / "events.msgpack"
    path.write_bytes(msgpack.packb([1.0, [ROOT]]) + b"".join(map(msgpack.packb, messages)) + rest)
    contents = read_pool_contents(str(path))

    assert contents.num_events >= 1
    assert contents.num_blocks >= contents.num_unrooted_blocks + contents.num_unreachable_blocks
    assert all(len(prefix.token_ids) % 4 == 0 or contents.block_size != 4
               for prefix in contents.prefixes)  # fmt: skip
