"""The whole answer for one prompt, as values."""

from __future__ import annotations

import pytest

from prefixaudit.cost.engine_log import EngineLog
from prefixaudit.cost.estimate import CostQuestion, estimate_cost
from prefixaudit.cost.hardware import find_gpu
from prefixaudit.cost.pool import PoolSettings
from prefixaudit.errors import UsageError
from prefixaudit.families import describe

from .golden import golden, published_config

LLAMA = describe(published_config("llama-3.1-8b"))


def test_flops_are_those_of_the_golden_case() -> None:
    _, record = golden("llama-3.1-8b")
    case = next(case for case in record["cases"] if case["n"] == 512)

    estimate = estimate_cost(LLAMA, CostQuestion(num_prompt_tokens=8192, num_cached_tokens=7680))

    assert dict(estimate.flops_hit) == case["closed_causal"]
    assert estimate.total_cold_flops == case["closed_causal_no_cache_total"]
    assert estimate.saved_flops == case["saved_by_cache_causal"]


def test_without_a_gpu_there_are_no_times_and_no_pool() -> None:
    estimate = estimate_cost(LLAMA, CostQuestion(num_prompt_tokens=100))

    assert estimate.times is None
    assert estimate.pool is None
    assert estimate.kv_bytes_prompt == 100 * 131_072


def test_log_alone_gives_the_pool() -> None:
    estimate = estimate_cost(
        LLAMA, CostQuestion(num_prompt_tokens=100, engine_log=EngineLog(num_tokens=409_600))
    )

    assert estimate.pool is not None
    assert estimate.pool.num_blocks == (25_600, 25_600)


def test_price_is_of_the_gpu_seconds_saved_at_saturation() -> None:
    estimate = estimate_cost(
        LLAMA,
        CostQuestion(
            num_prompt_tokens=8192,
            num_cached_tokens=4096,
            gpu=find_gpu("h100-sxm"),
            usd_per_gpu_hour=3.6,
        ),
    )

    assert estimate.times is not None
    # 61.57 TFLOP by 989 TFLOPS by 0.75 and 0.40, at 0.001 USD a second.
    saved = estimate.saved_flops
    assert estimate.times.gpu_s_saved == pytest.approx(
        (saved / 989e12 / 0.75, saved / 989e12 / 0.40)
    )
    assert estimate.times.usd_saved == pytest.approx(
        tuple(seconds / 1000 for seconds in estimate.times.gpu_s_saved)
    )


def test_every_time_is_a_range_with_assumptions() -> None:
    estimate = estimate_cost(
        LLAMA,
        CostQuestion(num_prompt_tokens=8192, num_cached_tokens=4096, gpu=find_gpu("l40s")),
    )

    assert estimate.times is not None
    for lo, hi in (
        estimate.times.prefill_cold_s,
        estimate.times.prefill_hit_s,
        estimate.times.saved_s,
        estimate.times.ttft_hit_s,
    ):
        assert 0 < lo < hi
    assert estimate.times.assumptions


def test_whole_prompt_cannot_be_cached() -> None:
    with pytest.raises(UsageError, match="0 to 99 can be cached"):
        estimate_cost(LLAMA, CostQuestion(num_prompt_tokens=100, num_cached_tokens=100))


def test_cached_tokens_beside_a_block_are_noted() -> None:
    hybrid = describe(published_config("qwen3.5-35b-a3b"))

    estimate = estimate_cost(
        hybrid,
        CostQuestion(
            num_prompt_tokens=4000,
            num_cached_tokens=2000,
            gpu=find_gpu("h200"),
            pool=PoolSettings(version="0.33.0"),
        ),
    )

    # Blocks of 1,056 tokens: one of them.
    assert "serves 1,056 of them" in estimate.notes[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepseek-v3", "latents of the cached prefix are expanded again"),
        ("deepseek-v3.2", "sparse attention in its dense form"),
        ("qwen3-next-80b-a3b", "recurrent form"),
    ],
)
def test_conventions_name_what_a_model_has(name: str, words: str) -> None:
    estimate = estimate_cost(describe(published_config(name)), CostQuestion(num_prompt_tokens=100))

    assert words in " ".join(estimate.conventions)


def test_layers_that_reuse_keys_are_a_convention() -> None:
    spec = describe(golden("gemma4-kvshare")[0])

    estimate = estimate_cost(spec, CostQuestion(num_prompt_tokens=100))

    assert "last position only" in " ".join(estimate.conventions)


def test_ranks_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(UsageError, match="3 GPUs can't share 32 attention heads"):
        estimate_cost(
            LLAMA, CostQuestion(num_prompt_tokens=100, pool=PoolSettings(tensor_parallel=3))
        )


def test_prompt_beyond_the_last_position_is_noted() -> None:
    estimate = estimate_cost(LLAMA, CostQuestion(num_prompt_tokens=200_000))

    assert "positions end at 131,072" in estimate.notes[0]


def test_log_of_the_block_size_alone_gives_the_block_and_no_pool() -> None:
    hybrid = describe(published_config("qwen3.5-35b-a3b"))
    log = EngineLog(block_size=2112)

    alone = estimate_cost(
        hybrid,
        CostQuestion(num_prompt_tokens=4000, num_cached_tokens=3000, engine_log=log),
    )
    with_gpu = estimate_cost(
        hybrid, CostQuestion(num_prompt_tokens=4000, engine_log=log, gpu=find_gpu("h200"))
    )

    assert alone.pool is None
    assert "serves 2,112 of them" in alone.notes[0]
    assert with_gpu.pool is not None
    assert with_gpu.pool.block_size == 2112
    assert with_gpu.pool.source == "estimate"
