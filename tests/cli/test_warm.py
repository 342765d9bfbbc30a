"""--warm-from: a pool that holds what a dump of KV events says before the log begins.

Hits are counted by hand: blocks of 4 tokens, at least one token of a prompt computed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest

from tests.cli.running import Ran, Runner, rows_of

SYSTEM = list(range(8))
LEFT = [10, 11, 12, 13]
RIGHT = [20, 21, 22, 23]
# Three blocks of the dump, of which the last token's rule takes none; two; none, nobody has it.
PROMPTS = {"a": [*SYSTEM, *RIGHT, 99], "b": [*SYSTEM, 50], "c": [70, 71, 72, 73, 74]}


def log_of(folder: Path, prompts: dict[str, list[int]] = PROMPTS, **more: Any) -> Path:
    path = folder / "log.jsonl"
    path.write_text(
        "".join(
            json.dumps({"request_id": name, "prompt_token_ids": ids, **more}) + "\n"
            for name, ids in prompts.items()
        )
    )
    return path


def stored(hashes: list[int], tokens: list[int], parent: int | None, **more: Any) -> dict[str, Any]:
    """An event as vLLM 0.33 encodes it."""
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
        "token_ids": tokens, "block_size": 4, "lora_id": None, "medium": "GPU",
        "lora_name": None, **more,
    }  # fmt: skip


EVENTS = [stored([1, 2], SYSTEM, None), stored([3], LEFT, 2), stored([4], RIGHT, 2)]


def dump_of(folder: Path, events: list[Any], *, kind: str = "vllm-map") -> Path:
    """Write the events as one of the engines does."""
    path = folder / "events.bin"
    if kind == "vllm-map":
        path.write_bytes(msgpack.packb([1.0, events, 0]))
        return path
    arrays = [
        [e["type"], e["block_hashes"], e["parent_block_hash"], e["token_ids"], e["block_size"],
         e["lora_id"]]
        for e in events
    ]  # fmt: skip
    if kind == "vllm-array":
        arrays = [[*array, e["medium"]] for array, e in zip(arrays, events, strict=True)]
        path.write_bytes(msgpack.packb([1.0, arrays, 0]))
    elif kind == "sglang":
        path.write_bytes(msgpack.packb([1.0, arrays, 0]))
    else:
        # LMCache hands vLLM's events on, as lines where they are logged.
        lines = [orjson.dumps({**event, "medium": "cpu"}) for event in events]
        path.write_bytes(b"\n".join([*lines, b""]))
    return path


def analyzed(cli: Runner, log: Path, *options: object) -> tuple[Any, list[int]]:
    rows = log.parent / "rows.jsonl"
    ran: Ran = cli(
        "analyze", log, "--block-size", 4, "--format", "json", "--per-request", rows, *options
    )
    assert ran.code == 0, ran.err
    return ran.json, [row["num_cached_tokens"] for row in rows_of(rows)]


@pytest.mark.parametrize("kind", ["vllm-map", "vllm-array", "sglang", "lmcache"])
def test_dump_of_each_engine_is_hit(cli: Runner, tmp_path: Path, kind: str) -> None:
    log = log_of(tmp_path)

    _, cold = analyzed(cli, log)
    report, warm = analyzed(cli, log, "--warm-from", dump_of(tmp_path, EVENTS, kind=kind))

    assert (cold, warm) == ([0, 8, 0], [12, 8, 0])
    assert report["pool"]["warm_start"]["num_tokens"] == 16
    assert report["pool"]["warm_start"]["num_blocks"] == 4


@pytest.mark.parametrize("engine", ["vllm@0.33.0", "sglang@0.5.4"])
def test_engines_own_pools_start_warm(cli: Runner, tmp_path: Path, engine: str) -> None:
    dump = dump_of(tmp_path, EVENTS)

    _, warm = analyzed(
        cli, log_of(tmp_path), "--warm-from", dump, "--engine", engine, "--capacity-blocks", 50
    )

    assert warm == [12, 8, 0]


def test_dump_counts_in_no_figure_and_no_row(cli: Runner, tmp_path: Path) -> None:
    log = log_of(tmp_path)
    cold, _ = analyzed(cli, log)
    warm, _ = analyzed(cli, log, "--warm-from", dump_of(tmp_path, EVENTS))

    assert warm["log"] == cold["log"]
    assert warm["totals"]["num_prompt_tokens"] == 13 + 9 + 5
    assert warm["totals"]["token_hit_rate"] == pytest.approx(20 / 27)
    assert warm["totals"]["request_hit_rate"] == pytest.approx(2 / 3)
    # Full blocks: 3, 2 and 1; hit: 3, 2 and 0.
    assert warm["totals"]["block_hit_rate"] == pytest.approx(5 / 6)
    assert warm["pool"]["num_distinct_blocks"] == cold["pool"]["num_distinct_blocks"] == 4
    # The second half of three requests are the last two.
    assert warm["totals"]["second_half_token_hit_rate"] == pytest.approx(8 / 14)
    places = {place["name"]: place["num_tokens"] for place in warm["why"]["waterfall"]["places"]}
    assert sum(places.values()) == 27
    assert places["reused"] == 20
    rows = rows_of(tmp_path / "rows.jsonl")
    assert [(row["index"], row["request_id"]) for row in rows] == [(0, "a"), (1, "b"), (2, "c")]
    # SYSTEM was stored with LEFT, the next block with RIGHT.
    assert rows[0]["donors"] == [
        {"request_id": None, "num_tokens": 8},
        {"request_id": None, "num_tokens": 4},
    ]


def test_small_pool_keeps_the_latest_of_the_dump(cli: Runner, tmp_path: Path) -> None:
    """Of 4 blocks a pool of 3 holds SYSTEM and RIGHT, stored last: LEFT is gone, the rest is hit.

    A prompt of LEFT finds SYSTEM only.
    """
    log = log_of(tmp_path, {"a": [*SYSTEM, *LEFT, 1]})
    dump = dump_of(tmp_path, EVENTS)

    hits = {
        size: analyzed(cli, log, "--warm-from", dump, "--capacity-blocks", size)[1]
        for size in (3, 4)
    }
    report, _ = analyzed(cli, log, "--warm-from", dump)

    assert hits == {3: [8], 4: [12]}
    curve = {p["capacity_blocks"]: p["num_cached_tokens"] for p in report["curve"]}
    assert all(curve[size] == expected for size, expected in ((3, 8), (4, 12)) if size in curve)
    assert report["totals"]["num_cached_tokens"] == 12


@pytest.mark.parametrize("engine", [(), ("--engine", "vllm@0.33.0"), ("--engine", "sglang@0.5.4")])
@pytest.mark.parametrize("capacity", [4, 5, 7])
def test_dump_is_as_good_as_its_prompts_before_the_log(
    cli: Runner, tmp_path: Path, capacity: int, engine: tuple[str, ...]
) -> None:
    size = ("--capacity-blocks", capacity, *engine)
    dump = dump_of(tmp_path, EVENTS)
    prompts = PROMPTS | {"d": [*SYSTEM, *LEFT, 1], "e": [*PROMPTS["c"], 1]}
    before = {"w1": [*SYSTEM, *LEFT], "w2": [*SYSTEM, *RIGHT]}

    _, warm = analyzed(cli, log_of(tmp_path, prompts), "--warm-from", dump, *size)
    _, whole = analyzed(cli, log_of(tmp_path, before | prompts), *size)

    assert warm == whole[2:]


def test_adapters_and_salts_keep_the_dump_apart(cli: Runner, tmp_path: Path) -> None:
    own = stored([1, 2], SYSTEM, None, lora_name="sql", lora_id=1, extra_keys=[["sql"], ["sql"]])
    dump = dump_of(tmp_path, [own])
    prompts = {"a": [*SYSTEM, 50]}

    plain = analyzed(cli, log_of(tmp_path, prompts, lora_name=None), "--warm-from", dump)
    same = analyzed(cli, log_of(tmp_path, prompts, lora_name="sql"), "--warm-from", dump)

    assert (plain[1], same[1]) == ([0], [8])


@pytest.mark.parametrize(("salt", "hits"), [("s1", [8]), ("s2", [0]), (None, [0])])
def test_salt_of_the_dump_is_the_requests(
    cli: Runner, tmp_path: Path, salt: str | None, hits: list[int]
) -> None:
    """A salt stands in the first block's key only, and isn't printed."""
    dump = dump_of(tmp_path, [stored([1, 2], SYSTEM, None, extra_keys=[["s1"], None])])
    log = log_of(tmp_path, {"a": [*SYSTEM, 50]}, cache_salt=salt)

    report, found = analyzed(cli, log, "--warm-from", dump, "--engine", "vllm@0.33.0")

    assert found == hits
    assert report["pool"]["warm_start"]["num_unnamed_prefixes"] == (hits == [0])
    assert "s1" not in json.dumps(report)


def test_images_of_the_dump_are_never_hit(cli: Runner, tmp_path: Path) -> None:
    dump = dump_of(tmp_path, [stored([1, 2], SYSTEM, None, extra_keys=[[["9f", 0]], None])])

    report, found = analyzed(cli, log_of(tmp_path, {"a": [*SYSTEM, 50]}), "--warm-from", dump)

    assert found == [0]
    assert report["pool"]["warm_start"]["num_unnamed_prefixes"] == 1


def test_block_ids_and_exports_have_no_tokens_to_match(cli: Runner, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n')

    ran = cli("analyze", trace, "--warm-from", dump_of(tmp_path, EVENTS))

    assert ran.code == 2
    assert "block ids" in ran.err


def test_repairs_are_replayed_from_an_empty_pool_only(cli: Runner, tmp_path: Path) -> None:
    dump = dump_of(tmp_path, EVENTS)

    ran = cli("analyze", log_of(tmp_path), "--warm-from", dump, "--what-if")

    assert ran.code == 2


def test_file_that_is_no_dump_is_refused(cli: Runner, tmp_path: Path) -> None:
    log = log_of(tmp_path)

    ran = cli("analyze", log, "--warm-from", log)

    assert ran.code == 3
    assert "no KV events" in ran.err
