"""FLOPs against figures that torch's counter measured on the model code itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.cost.flops import (
    causal_pairs,
    flops_by_depth,
    prefill_flops,
    saved_flops,
    square_pairs,
    total_flops,
)
from prefixaudit.cost.memory import kv_bytes_per_token
from prefixaudit.families import describe

from .golden import golden, golden_records, published_config

RECORDS = golden_records()


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_components_equal_the_goldens_as_integers(
    config: dict[str, Any], record: dict[str, Any]
) -> None:
    spec = describe(config)

    for case in record["cases"]:
        causal = prefill_flops(spec, case["n"], case["c"])
        square = prefill_flops(spec, case["n"], case["c"], form="square")
        saved = saved_flops(spec, case["c"])

        assert _without_zeros(causal) == _without_zeros(case["closed_causal"])
        assert _without_zeros(square) == _without_zeros(case["closed_square"])
        assert total_flops(causal) == case["closed_causal_total"]
        assert saved == case["saved_by_cache_causal"]


def _without_zeros(components: dict[str, int]) -> dict[str, int]:
    return {name: number for name, number in components.items() if number}


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_savings_are_a_function_of_position_only(
    config: dict[str, Any], record: dict[str, Any]
) -> None:
    """prefill(T, 0) - prefill(T - c, c) is the same for every T: two sums worked out in full."""
    spec = describe(config)

    for cached in (1, 16, 40, 100):
        differences = {
            total_flops(prefill_flops(spec, length, 0))
            - total_flops(prefill_flops(spec, length - cached, cached))
            for length in (cached + 1, cached + 17, cached + 300)
        }

        assert differences == {saved_flops(spec, cached)}


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_arrays_give_what_whole_numbers_give(
    config: dict[str, Any], record: dict[str, Any]
) -> None:
    spec = describe(config)
    n, c = np.array([1, 5, 33, 100, 2048]), np.array([0, 12, 64, 1, 8000])

    arrays = prefill_flops(spec, n, c)

    for index in range(len(n)):
        exact = prefill_flops(spec, int(n[index]), int(c[index]))
        assert {name: float(array[index]) for name, array in arrays.items()} == pytest.approx(
            exact, rel=1e-14
        )
    assert saved_flops(spec, c).tolist() == pytest.approx(
        [saved_flops(spec, int(number)) for number in c], rel=1e-14
    )


visible = st.one_of(
    st.just(("full", 0)),
    st.tuples(st.sampled_from(["window", "chunk"]), st.integers(1, 40)),
)


@given(visible=visible, n=st.integers(1, 80), c=st.integers(0, 80))
def test_pairs_are_those_of_the_mask(visible: Any, n: int, c: int) -> None:
    """Counted one by one over the mask."""
    kind, size = visible
    pairs = 0
    for query in range(c, c + n):
        for key in range(query + 1):
            pairs += (
                kind == "full"
                or (kind == "window" and query - key < size)
                or (kind == "chunk" and query // size == key // size)
            )

    assert causal_pairs(visible, n, c) == pairs
    if kind == "full":
        assert square_pairs(visible, n, c) == n * (n + c)


def test_blocks_of_a_prefix_add_up_to_what_the_prefix_saves() -> None:
    for name in ("llama3-gqa", "gemma3-text-swa5to1", "deepseek-v3", "llama-4-scout"):
        spec = describe(golden(name)[0])

        by_depth = flops_by_depth(spec, 16, 50)

        assert by_depth.sum() == pytest.approx(saved_flops(spec, 800), rel=1e-12)
        assert by_depth[0] == pytest.approx(saved_flops(spec, 16), rel=1e-12)


def test_later_blocks_save_more_than_earlier_ones() -> None:
    by_depth = flops_by_depth(describe(golden("llama-3.1-8b")[0]), 16, 1000)

    assert (np.diff(by_depth) > 0).all()


def test_a_million_pairs_take_well_under_a_second() -> None:
    spec = describe(golden("gemma-4-26b-a4b")[0])
    generator = np.random.default_rng(1)
    n, c = generator.integers(1, 8192, 1_000_000), generator.integers(0, 131_072, 1_000_000)

    start = time.process_time()
    prefill_flops(spec, n, c)

    assert time.process_time() - start < 1.0


# Share of FLOPs that a cached half (nine tenths) of a prompt saves, in percent, as published with
# the measurements; prompts of 2,048, 8,192, 65,536 and 131,072 tokens.
SAVED_SHARES = {
    "llama-3.1-8b": [(49.1, 89.7), (46.7, 88.8), (36.2, 85.0), (32.2, 83.6)],
    "llama-3.1-70b": [(49.5, 89.8), (48.2, 89.3), (40.4, 86.5), (36.1, 85.0)],
    "qwen3-30b-a3b": [(46.8, 88.8), (40.7, 86.6), (29.4, 82.6), (27.4, 81.9)],
    "gpt-oss-120b": [(49.2, 89.7), (47.1, 88.9), (37.2, 85.4), (33.0, 83.9)],
    "gemma-3-27b-it": [(49.7, 89.9), (49.6, 89.9), (47.7, 89.2), (45.7, 88.5)],
    "deepseek-v3": [(47.0, 87.0), (43.3, 86.0), (32.2, 82.9), (29.2, 82.1)],
    "qwen3-next-80b-a3b": [(49.3, 89.7), (47.3, 89.0), (37.7, 85.6), (33.5, 84.1)],
}


@pytest.mark.parametrize("name", SAVED_SHARES)
def test_shares_saved_are_those_published(name: str) -> None:
    spec = describe(published_config(name))

    for length, shares in zip((2048, 8192, 65_536, 131_072), SAVED_SHARES[name], strict=True):
        whole = total_flops(prefill_flops(spec, length, 0))
        half, most = (saved_flops(spec, int(length * share)) / whole for share in (0.5, 0.9))

        assert (round(100 * half, 1), round(100 * most, 1)) == pytest.approx(shares, abs=0.051)


# Published GFLOP a token: the part that doesn't grow, the mean over an 8k prefill, then attention's
# share in percent at 8k and 64k (None: not published), and bf16 KV bytes a token.
PER_TOKEN = {
    "llama-3.1-8b": (13.96, 16.11, 13, 55, 131_072),
    "llama-3.1-70b": (136.9, 147.6, 7, 39, 327_680),
    "llama-3.1-405b": (803, 837, 4, 25, 516_096),
    "qwen3-8b": (13.89, 16.31, 15, 58, 147_456),
    "qwen3-32b": (62.4, 71.0, 12, 52, 262_144),
    "qwen3-30b-a3b": (5.46, 8.68, 37, 83, 98_304),
    "qwen3-235b-a22b": (41.9, 54.5, 23, 71, 192_512),
    "mixtral-8x7b": (25.2, 27.4, 8, 41, 131_072),
    "gpt-oss-20b": (6.06, 6.89, 12, 52, 49_152),
    "gpt-oss-120b": (9.10, 10.35, 12, 52, 73_728),
    "gemma-3-27b-it": (51.2, 52.7, 3, 11, 507_904),
    "mistral-small-24b-instruct-2501": (44.5, 47.1, 6, 33, 163_840),
    "phi-3.5-mini-instruct": (7.25, 8.86, 18, 64, 393_216),
    "deepseek-v3": (71.4, 91.9, 22, 70, 70_272),
    "deepseek-v3.2": (73.1, 97.7, None, None, 85_888),
    "kimi-k2-instruct": (61.0, 71.3, 14, 57, 70_272),
    "glm-4.5": (64.2, 82.7, 22, 70, 376_832),
    "glm-4.5-air": (24.4, 33.6, 28, 75, 188_416),
    "llama-4-scout": (30.2, 34.2, 12, 27, 196_608),
    "qwen3-next-80b-a3b": (6.62, 7.42, 11, 49, 24_576),
    "qwen3.5-35b-a3b": (4.97, 5.64, 12, 52, 20_480),
    "nemotron-3-nano-30b-a3b": (5.82, 6.23, 7, 36, 6_144),
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_flops_a_token_are_those_published(name: str) -> None:
    linear, mean, share_8k, share_64k, kv_bytes = PER_TOKEN[name]
    spec = describe(published_config(name))
    attention = ("attn_core", "indexer_core")

    flops = prefill_flops(spec, 8192, 0)
    rest = sum(number for part, number in flops.items() if part not in (*attention, "lm_head"))

    assert rest / 8192 / 1e9 == pytest.approx(linear, rel=0.008)
    assert total_flops(flops) / 8192 / 1e9 == pytest.approx(mean, rel=0.008)
    for length, share in ((8192, share_8k), (65_536, share_64k)):
        if share is not None:
            parts = prefill_flops(spec, length, 0)
            part = sum(parts.get(component, 0) for component in attention)
            assert 100 * part / total_flops(parts) == pytest.approx(share, abs=1.1)
    assert kv_bytes_per_token(spec, kv_cache_dtype="bfloat16") == kv_bytes


def test_latents_of_the_cached_prefix_are_paid_again() -> None:
    """Published: 23 % of the remaining FLOPs at 7,680 cached tokens, 40 % at 65,024."""
    spec = describe(published_config("deepseek-v3"))

    for cached, share in ((7680, 0.23), (65_024, 0.40)):
        flops = prefill_flops(spec, 512, cached)
        assert flops["mla_kv_up"] / total_flops(flops) == pytest.approx(share, abs=0.006)


def test_head_charged_for_each_token_would_be_seven_percent_too_much() -> None:
    spec = describe(published_config("llama-3.1-8b"))
    flops = prefill_flops(spec, 8192, 0)

    assert flops["lm_head"] == 2 * 4096 * 128_256
    per_token = flops["lm_head"] * 8191 / total_flops(flops)
    assert per_token == pytest.approx(0.065, abs=0.01)


def test_layers_that_reuse_keys_can_be_counted_for_every_position() -> None:
    """Gemma 4's last two of eight layers: six layers' MLPs, or all eight."""
    spec = describe(golden("gemma4-kvshare")[0])

    last = prefill_flops(spec, 33, 12)["dense_mlp"]
    every = prefill_flops(spec, 33, 12, last_position_only=False)["dense_mlp"]

    assert last == 6 * (6 * 64 * 96 * 33) + 2 * (6 * 64 * 96)
    assert every == 8 * (6 * 64 * 96 * 33)
    assert saved_flops(spec, 12, last_position_only=False) > saved_flops(spec, 12)


def test_numpy_integers_do_not_overflow() -> None:
    """405B at ten million tokens: 3.3e21 FLOPs, far beyond 64 bits."""
    spec = describe(published_config("llama-3.1-405b"))

    found = prefill_flops(spec, np.int64(10_000_000), np.int64(0))  # type: ignore[call-overload]

    assert found == prefill_flops(spec, 10_000_000, 0)
    assert total_flops(found) > 2**64


def test_nothing_to_compute_costs_nothing_in_arrays_and_is_refused_alone() -> None:
    spec = describe(golden("deepseek-v3")[0])

    arrays = prefill_flops(spec, np.array([0, 1]), np.array([100, 100]))

    assert sum(array[0] for array in arrays.values()) == 0
    assert sum(array[1] for array in arrays.values()) == total_flops(prefill_flops(spec, 1, 100))
    with pytest.raises(ValueError, match="0 new tokens"):
        prefill_flops(spec, 0, 100)
