"""Several servers: pools of their own, stores that they share, and what a log leaves open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.audit.auditing import audit_of, found, rows_of, run_log, write_log

TWO_SERVERS = """
[model]
name = "m"
[engine]
name = "vllm"
version = "0.33.0"
[pool]
capacity_blocks = 8
[[server]]
name = "a"
match = { source = "field:node" }
[[server]]
name = "b"
match = { source = "field:node" }
"""
STORE = '[[tier]]\nname = "store"\nkind = "vllm-file-tier"\nblock_size = 16\n'


def _record(number: int, node: str | None, first: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "request_id": f"r{number}",
        "arrival_s": 1_772_438_400 + number,
        "tenant": "acme",
        "cache_salt": None,
        "lora_name": None,
        "prompt_token_ids": [*range(first, first + 80), number],
        **({} if node is None else {"node": node}),
        **fields,
    }


def test_each_server_hits_its_own_blocks_and_the_store_those_of_all(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "requests.jsonl", [_record(0, "a"), _record(1, "b"), _record(2, "a")]
    )

    report = run_log(log, TWO_SERVERS + STORE)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 0, 80]
    assert rows_of(report, "store").num_cached_tokens.tolist() == [0, 80, 80]
    assert report.rows.lookups.num_cached_tokens.tolist() == [0, 0, 80]


def test_one_servers_prompts_evict_nothing_from_another_servers_pool(tmp_path: Path) -> None:
    """Pools of 8 blocks: two prompts of 5 blocks don't fit in one, but one in each does."""
    records = [_record(0, "a"), _record(1, "b", first=500), _record(2, "a")]
    log = write_log(tmp_path / "requests.jsonl", records)

    report = run_log(log, TWO_SERVERS)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 0, 80]


def test_store_of_servers_that_differ_serves_other_positions(tmp_path: Path) -> None:
    deployment = (
        TWO_SERVERS.replace(
            'name = "a"\n', 'name = "a"\nidentity = { position_encoding = "yarn 2" }\n'
        ).replace('name = "b"\n', 'name = "b"\nidentity = { position_encoding = "yarn 4" }\n')
        + STORE
    )
    log = write_log(tmp_path / "requests.jsonl", [_record(0, "a"), _record(1, "b")])

    report = run_log(log, deployment)

    assert found(report)["store-serves-other-positions"] == (1,)
    assert audit_of(report).tiers[1].smallest_closing_fields == ("position_encoding",)


def test_unknown_fields_of_one_process_are_no_question(tmp_path: Path) -> None:
    """Reader and donor of one server have one position encoding, whatever it is."""
    log = write_log(tmp_path / "requests.jsonl", [_record(0, "a"), _record(1, "a")])

    report = run_log(log, TWO_SERVERS + STORE)

    open_ = {f.rule: f.observation.requests for f in audit_of(report).findings}
    assert not open_.get("store-serves-other-positions")


def test_unknown_fields_of_two_processes_are_a_question(tmp_path: Path) -> None:
    log = write_log(tmp_path / "requests.jsonl", [_record(0, "a"), _record(1, "b")])

    report = run_log(log, TWO_SERVERS + STORE)

    (finding,) = (f for f in audit_of(report).findings if f.rule == "store-serves-other-positions")
    assert finding.observation.verdict == "inconclusive"
    assert "position_encoding" in finding.observation.facts["unknown_fields"]


def test_requests_of_no_server_share_one_pool(tmp_path: Path) -> None:
    log = write_log(tmp_path / "requests.jsonl", [_record(0, None), _record(1, None)])

    report = run_log(log, TWO_SERVERS)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 80]


def test_random_roots_share_nothing_through_a_store(tmp_path: Path) -> None:
    """vLLM before 0.29 without PYTHONHASHSEED: hashes of two processes are never equal."""
    deployment = TWO_SERVERS.replace("0.33.0", "0.28.0") + STORE
    settings = 'settings = { python_hash_seed = false, prefix_caching_hash_algo = "sha256" }\nmatch'
    log = write_log(
        tmp_path / "requests.jsonl", [_record(0, "a"), _record(1, "b"), _record(2, "b")]
    )

    report = run_log(log, deployment.replace("match", settings))

    assert rows_of(report, "store").num_cached_tokens.tolist() == [0, 0, 80]
