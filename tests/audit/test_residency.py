"""A sharing is real only while the donor's block is in the pool: shared, not shared, can't say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.audit.auditing import audit_of, found, rows_of, run_log, write_log

VLLM = '[model]\nname = "m"\n[engine]\nname = "vllm"\nversion = "0.33.0"\n'


def _record(number: int, tenant: str, first: int, **fields: Any) -> dict[str, Any]:
    return {
        "request_id": f"r{number}",
        "arrival_s": 1_772_438_400 + number,
        "tenant": tenant,
        "cache_salt": None,
        "lora_name": None,
        "prompt_token_ids": list(range(first, first + 65)),
        **fields,
    }


def _log(folder: Path) -> Path:
    """acme's prompt, then another of its own, then bob sends acme's first one."""
    records = [_record(0, "acme", 0), _record(1, "acme", 500), _record(2, "bob", 0)]
    return write_log(folder / "requests.jsonl", records)


@pytest.mark.parametrize(
    ("capacity_blocks", "readers"),
    [
        (20, (2,)),
        # 5 blocks a prompt, the tail included: the second prompt evicts all of the first one.
        (5, ()),
    ],
)
def test_evicted_blocks_are_shared_with_nobody(
    tmp_path: Path, capacity_blocks: int, readers: tuple[int, ...]
) -> None:
    deployment = f"{VLLM}[pool]\ncapacity_blocks = {capacity_blocks}\n"

    report = run_log(_log(tmp_path), deployment)

    assert found(report).get("tenant-shares-private-prefix", ()) == readers


def test_a_reset_between_the_two_ends_the_sharing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    (tmp_path / "events.jsonl").write_text(
        '{"timestamp": 1772438401.5, "event": "reset_prefix_cache"}\n'
    )

    report = run_log(log, f'{VLLM}[events]\npath = "events.jsonl"\n')

    assert found(report) == {}
    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 0, 0]


def test_store_outlives_a_reset_of_the_pool(tmp_path: Path) -> None:
    log = _log(tmp_path)
    (tmp_path / "events.jsonl").write_text(
        '{"timestamp": 1772438401.5, "event": "reset_prefix_cache"}\n'
    )
    store = '[[tier]]\nname = "store"\nkind = "vllm-file-tier"\nblock_size = 16\n'

    report = run_log(log, f'{VLLM}{store}[events]\npath = "events.jsonl"\n')

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 0, 0]
    assert rows_of(report, "store").num_cached_tokens.tolist() == [0, 0, 64]
    assert found(report) == {"tenant-shares-private-prefix": (2,)}


def test_request_that_reads_no_cache_is_served_nothing(tmp_path: Path) -> None:
    records = [_record(0, "acme", 0), _record(1, "bob", 0, reads_cache=False)]

    report = run_log(write_log(tmp_path / "requests.jsonl", records), VLLM)

    assert "tenant-shares-private-prefix" not in found(report)


def test_salt_that_is_not_logged_leaves_the_question_open(tmp_path: Path) -> None:
    records = [_record(0, "acme", 0), _record(1, "bob", 0)]
    for record in records:
        del record["cache_salt"]

    report = run_log(write_log(tmp_path / "requests.jsonl", records), VLLM)

    (finding,) = (f for f in audit_of(report).findings if f.rule == "tenant-shares-private-prefix")
    assert finding.observation.verdict == "inconclusive"
    assert finding.observation.facts["unknown_fields"] == ["cache_salt"]
