"""Media as a key holds them: whole, without their place, cut to a few bits, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.audit.media import media_as
from prefixaudit.core.prompt import MediaSpan
from tests.audit.auditing import found, rows_of, run_log, write_log

PLACEHOLDER = 151_655
CAT = "5c0d" * 15 + "9e41"
# The last 16 bits are those of the cat's.
DOG = "77ab" * 15 + "9e41"
BIRD = "01ff" * 15 + "0000"


def _record(number: int, picture: str, offset: int = 32) -> dict[str, Any]:
    """32 tokens of text, 64 placeholders, of which a picture takes those from `offset` on."""
    return {
        "request_id": f"r{number}",
        "arrival_s": 1_772_438_400 + number,
        "tenant": "acme",
        "cache_salt": None,
        "lora_name": None,
        "prompt_token_ids": [*range(32), *[PLACEHOLDER] * 64, 7],
        "media": [{"identifier": picture, "offset": offset, "num_tokens": 96 - offset}],
    }


def _run(folder: Path, deployment: str, *records: dict[str, Any]) -> Any:
    log = write_log(folder / "requests.jsonl", records)
    return run_log(log, f'[model]\nname = "m"\n{deployment}')


@pytest.mark.parametrize(
    ("version", "num_cached_tokens", "readers"), [("0.18.0", 96, (1,)), ("0.19.0", 32, ())]
)
def test_place_of_a_picture_is_in_the_key_from_this_release_on(
    tmp_path: Path, version: str, num_cached_tokens: int, readers: tuple[int, ...]
) -> None:
    """The same picture four tokens later, behind equal placeholders (vLLM 0.7 to 0.18)."""
    deployment = f'[engine]\nname = "vllm"\nversion = "{version}"\n'

    report = _run(tmp_path, deployment, _record(0, CAT), _record(1, CAT, offset=36))

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, num_cached_tokens]
    assert found(report).get("served-other-media", ()) == readers


@pytest.mark.parametrize(
    ("version", "cached", "readers"),
    [("0.5.4", [0, 96, 32], (1,)), ("0.5.5", [0, 32, 32], ())],
)
def test_sixteen_bits_of_a_picture_are_another_pictures(
    tmp_path: Path, version: str, cached: list[int], readers: tuple[int, ...]
) -> None:
    """LMCache up to 0.5.4 writes 16 bits in place of the placeholders: cat and dog are one."""
    deployment = (
        '[engine]\nname = "vllm"\nversion = "0.33.0"\n[[tier]]\nname = "store"\n'
        f'kind = "lmcache"\nversion = "{version}"\nblock_size = 16\n'
    )

    report = _run(tmp_path, deployment, *(_record(n, p) for n, p in enumerate([CAT, DOG, BIRD])))

    assert rows_of(report, "store").num_cached_tokens.tolist() == cached
    assert rows_of(report, "store").num_safe_cached_tokens.tolist() == [0, 32, 32]
    assert found(report).get("served-other-media", ()) == readers


def test_keys_by_identifier_name_each_block_that_a_medium_overlaps() -> None:
    media = (
        MediaSpan(identifier="a", offset=6, num_tokens=4),
        MediaSpan(identifier="b", offset=12, num_tokens=1),
    )

    spans = media_as("identifier", media, block_size=8)

    assert spans == (
        MediaSpan(identifier="a", offset=0, num_tokens=8),
        MediaSpan(identifier="a\0b", offset=8, num_tokens=8),
    )


def _adapters(folder: Path, version: str) -> dict[str, tuple[int, ...]]:
    """Two servers load their adapters in another order and share a store of block hashes."""
    records = [
        {
            "request_id": f"r{number}",
            "timestamp": f"2026-03-02T08:0{number}:00Z",
            "tenant": "acme",
            "node": node,
            "lora": {"name": name, "int_id": load},
            "body": {"model": name, "prompt": [*range(80), number], "max_tokens": 1},
        }
        for number, (node, name, load) in enumerate([("a", "sql", 1), ("b", "legal", 1)])
    ]
    deployment = (
        f'[engine]\nname = "vllm"\nversion = "{version}"\n'
        '[[server]]\nname = "a"\nmatch = { source = "field:node" }\n'
        '[[server]]\nname = "b"\nmatch = { source = "field:node" }\n'
        '[[tier]]\nname = "store"\nkind = "vllm-file-tier"\nblock_size = 16\n'
    )
    return found(run_log(write_log(folder / "requests.jsonl", records), deployment))


def test_adapter_numbers_of_two_servers_are_no_identity(tmp_path: Path) -> None:
    """vLLM up to 0.11.0 keys the number of an adapter's load; from 0.11.1 on its name."""
    assert _adapters(tmp_path, "0.11.0") == {"store-serves-other-adapter": (1,)}
    assert _adapters(tmp_path, "0.11.1") == {}


def test_a_reload_under_another_number_shares_nothing(tmp_path: Path) -> None:
    records = [
        {
            "request_id": f"r{number}",
            "timestamp": f"2026-03-02T08:0{number}:00Z",
            "lora": {"name": "legal", "int_id": number + 1},
            "body": {"model": "legal", "prompt": [*range(80), number]},
        }
        for number in range(2)
    ]
    log = write_log(tmp_path / "requests.jsonl", records)

    old = run_log(log, '[engine]\nname = "vllm"\nversion = "0.11.0"\n')
    new = run_log(log, '[engine]\nname = "vllm"\nversion = "0.11.1"\n')

    assert found(old) == {}
    assert found(new) == {"adapter-revision-mismatch": (1,)}
