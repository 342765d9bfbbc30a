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
from prefixaudit.families import describe

from .golden import golden, golden_records

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
