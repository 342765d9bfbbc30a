"""How many blocks fit: a range, a setting, or the engine's own word."""

from __future__ import annotations

import pytest

from prefixaudit.cost.engine_log import EngineLog
from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.cost.pool import (
    GIB,
    OVERHEAD_BYTES,
    PoolSettings,
    default_utilization,
    estimate_pool,
)
from prefixaudit.cost.weights import weight_bytes
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe

from .golden import published_config

LLAMA = describe(published_config("llama-3.1-8b"))
H100 = find_gpu("h100-sxm")


def test_estimate_is_a_range_with_its_assumptions() -> None:
    """By hand: 79.3 GiB by 0.92, less 14.96 of weights, less 1.5 and 8; blocks of 2 MiB."""
    pool = estimate_pool(LLAMA, PoolSettings(version="0.33.0"), gpu=H100)

    weights = 8_030_261_248 * 2 / GIB
    expected = [int((79.3 * 0.92 - weights - used) * GIB / (2 * 2**20)) for used in (8, 1.5)]
    assert list(pool.num_blocks) == pytest.approx(expected, abs=1)
    assert pool.source == "estimate"
    assert any("0.92 assumed" in line for line in pool.assumptions)
    assert any("1.5 to 8 GiB" in line for line in pool.assumptions)


# (memory by utilization, weights, what was subtracted beside them, KV logged), GiB:
# vllm-project/vllm#50722 (activation, non-torch memory, CUDA graphs), noonghunna/club-3090#1139.
LOGGED = [
    (79.33 * 0.85, 16.92, 5.66 + 0.13 + 1.34, 43.4),
    (21.67, 15.25, 1.66, 4.76),
]


@pytest.mark.parametrize(("requested", "weights", "used", "kv"), LOGGED)
def test_what_engines_logged_lies_in_the_range(
    requested: float, weights: float, used: float, kv: float
) -> None:
    least, most = (size / GIB for size in OVERHEAD_BYTES)

    assert requested - weights - used == pytest.approx(kv, abs=0.05)
    assert requested - weights - most <= kv <= requested - weights - least


def test_defaults_of_utilization_by_release() -> None:
    assert default_utilization("0.11.0") == (0.90, 0.90)
    assert default_utilization("0.33.1") == (0.92, 0.92)
    assert default_utilization("0.20.0") == default_utilization(None) == (0.90, 0.92)
    with pytest.raises(ConfigurationError, match="is not a version"):
        default_utilization("newest")


def test_log_beats_the_estimate() -> None:
    log = EngineLog(num_tokens=409_600)

    pool = estimate_pool(LLAMA, PoolSettings(), gpu=H100, log=log)

    assert pool.source == "engine-log"
    assert pool.num_blocks == (25_600, 25_600)
    assert pool.kv_bytes == (50 * GIB, 50 * GIB)


def test_log_of_memory_is_cut_in_blocks() -> None:
    pool = estimate_pool(LLAMA, PoolSettings(), log=EngineLog(kv_bytes=50 * GIB))

    assert pool.num_blocks == (25_600, 25_600)


def test_block_size_of_the_log_counts() -> None:
    spec = describe(published_config("qwen3.5-35b-a3b"))

    pool = estimate_pool(spec, PoolSettings(), log=EngineLog(block_size=2112, num_blocks=100))

    assert pool.block_size == 2112
    assert any("1056" in line for line in pool.assumptions)


def test_settings_give_one_number() -> None:
    fixed = estimate_pool(LLAMA, PoolSettings(kv_cache_memory_bytes=50 * GIB))
    forced = estimate_pool(LLAMA, PoolSettings(num_blocks_override=77), gpu=H100)

    assert fixed.num_blocks == (25_600, 25_600)
    assert forced.num_blocks == (77, 77)
    assert fixed.source == forced.source == "setting"


def test_weights_that_leave_no_room_are_named() -> None:
    spec = describe(published_config("llama-3.1-70b"))

    with pytest.raises(ConfigurationError, match=r"131.4 GiB a GPU.*H100"):
        estimate_pool(spec, PoolSettings(), gpu=H100)


def test_nothing_to_go_by_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="needs a GPU"):
        estimate_pool(LLAMA, PoolSettings())


def test_engine_without_a_rule_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="known: sglang, vllm"):
        estimate_pool(LLAMA, PoolSettings(engine="trtllm"), gpu=H100)


def test_sglang_keeps_cells_of_one_token() -> None:
    """Issue vllm-project/vllm#21348: 367,404 tokens were 8.23 GiB of keys and 8.23 of values."""
    spec = describe(published_config("qwen3-235b-a22b-fp8"))

    size = 367_404 * kv_bytes_per_token(spec, tensor_parallel=4)

    assert size / GIB == pytest.approx(8.23 + 8.23, abs=0.02)
    pool = estimate_pool(
        spec, PoolSettings(engine="sglang", tensor_parallel=4), log=EngineLog(num_tokens=367_404)
    )
    assert pool.block_size == 1
    assert pool.kv_bytes[0] == size


def test_weights_follow_their_quantization() -> None:
    """Files of Llama-3.1-8B: 16.06 GB; of DeepSeek-V3 about 690 GB, of gpt-oss-120b 61 GiB."""
    assert weight_bytes(LLAMA) == 16_060_522_496
    assert weight_bytes(describe(published_config("deepseek-v3"))) == pytest.approx(
        6.75e11, rel=0.03
    )
    gpt_oss = describe(published_config("gpt-oss-120b"))
    assert weight_bytes(gpt_oss) / GIB == pytest.approx(61, rel=0.02)
