"""What engines say of their own caches: lines of their logs, and their metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import IncompleteError
from prefixaudit.logs import ReadOptions, read_logs
from tests.logs.reading import DATA, SHARED, Read, ids_line

SAMPLES = DATA / "samples"


def test_vllm_v0_rate_is_since_start_and_v1_of_recent_requests() -> None:
    old = Read(SAMPLES / "vllm.log").stream.readings
    new = Read(SAMPLES / "vllm.debug.log").stream.readings

    assert [(r.hit_rate, r.hit_rate_scope) for r in old] == [
        (UNKNOWN, UNKNOWN),
        (0.625, "since-start"),
    ]
    assert [(r.hit_rate, r.hit_rate_scope) for r in new] == [(0.5, "recent-requests")]


def test_vllm_line_gives_usage_queues_and_preemptions() -> None:
    (reading,) = Read(SAMPLES / "vllm.debug.log").stream.readings

    assert (reading.engine, reading.server) == ("vllm", "000")
    assert reading.kv_usage == pytest.approx(0.971)
    assert (reading.num_running, reading.num_waiting) == (1, 4)
    assert reading.num_preemptions == 2
    assert reading.external_hit_rate == 0.125


def test_rate_is_unknown_until_a_request_was_seen() -> None:
    (reading,) = Read(SAMPLES / "vllm.formatter.jsonl").stream.readings

    assert reading.hit_rate is UNKNOWN
    assert reading.kv_usage == 0.0


def test_pools_are_read_off() -> None:
    old = Read(SAMPLES / "vllm.log").stream.pool_readings
    new = Read(SAMPLES / "vllm.debug.log").stream.pool_readings
    sglang = Read(SAMPLES / "sglang.log").stream.pool_readings

    assert [r.num_pool_blocks for r in old] == [27834]
    assert [r.num_pool_tokens for r in new] == [445_344]
    assert [(r.num_pool_tokens, r.block_size) for r in sglang] == [
        (UNKNOWN, 1),
        (1_048_576, UNKNOWN),
    ]


def test_sglang_batches_add_up_by_rank() -> None:
    """Two batches of 5 + 64 and 10 + 6 tokens."""
    first, last = Read(SAMPLES / "sglang.log").stream.readings

    assert (first.num_computed_tokens, first.num_cached_tokens) == (5, 64)
    assert (last.num_computed_tokens, last.num_cached_tokens) == (15, 70)
    assert last.server == "TP0"


def prometheus_beside_a_log(tmp_path: Path, text: str) -> Read:
    (tmp_path / "a.jsonl").write_bytes(ids_line(1) + b"\n")
    (tmp_path / "m.prom").write_text(text)
    return Read(tmp_path / "a.jsonl", tmp_path / "m.prom")


def test_prometheus_counters_by_server(tmp_path: Path) -> None:
    read = prometheus_beside_a_log(tmp_path, (DATA / "prometheus.prom").read_text())
    first, second = read.stream.readings

    assert first.server == "engine=0,model_name=m"
    assert (first.num_queried_tokens, first.num_hit_tokens) == (120_000, 90_000)
    assert (first.num_prompt_tokens, first.num_preemptions) == (115_000, 3)
    assert first.kv_usage == 0.5
    assert second.num_queried_tokens == 1000
    assert second.num_hit_tokens is UNKNOWN
    (pool,) = read.stream.pool_readings
    assert (pool.num_pool_blocks, pool.block_size, pool.num_pool_tokens) == (1000, 16, 16_000)
    assert len(read.requests) == 1


def test_each_scrape_of_a_file_is_a_reading(tmp_path: Path) -> None:
    scrape = 'sglang:prompt_tokens_total{model_name="m"} %d 1772438400000\nsglang:cache_hit_rate{model_name="m"} 0.25\n'  # noqa: E501
    read = prometheus_beside_a_log(tmp_path, scrape % 100 + scrape % 300)
    first, second = read.stream.readings

    assert (first.num_queried_tokens, second.num_queried_tokens) == (100, 300)
    assert (first.hit_rate, first.hit_rate_scope) == (0.25, "recent-requests")
    assert first.time_s == 1772438400.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x", "1e400"])
def test_values_that_are_no_counts_are_unknown(tmp_path: Path, value: str) -> None:
    text = f"vllm:prompt_tokens_total {value}\nvllm:num_requests_running 2\n"
    (reading,) = prometheus_beside_a_log(tmp_path, text).stream.readings

    assert reading.num_prompt_tokens is UNKNOWN
    assert reading.num_running == 2


def test_metrics_alone_say_what_is_missing() -> None:
    with pytest.raises(IncompleteError, match="only what an engine says of its cache"):
        list(read_logs([str(DATA / "prometheus.prom")], ReadOptions()))


def test_public_case_of_preempted_work() -> None:
    """Case B039: the engine's last rate is 32 %, with the pool full and requests waiting."""
    folder = SHARED / "cases" / "B039-preempted-work-counted-as-hits"
    if not folder.exists():
        pytest.skip("the public cases aren't here")
    read = Read(folder / "requests.jsonl", folder / "vllm.log")
    last = read.stream.readings[-1]

    assert last.hit_rate == 0.32
    assert last.hit_rate_scope == "recent-requests"
    assert isinstance(last.kv_usage, float)
    assert last.kv_usage > 0.9
    assert last.num_waiting == 3
    assert read.stream.files[1].num_records == 0


def test_public_case_of_a_large_block_gives_its_size() -> None:
    """Case B047: a hybrid model's start-up log sets blocks of 528 tokens."""
    folder = SHARED / "cases" / "B047-hybrid-block-of-528"
    if not folder.exists():
        pytest.skip("the public cases aren't here")
    read = Read(folder / "requests.jsonl", folder / "vllm.log")

    assert [r.block_size for r in read.stream.pool_readings if r.block_size is not UNKNOWN] == [528]
