"""Choosing a tier's recipe, and telling which processes' hashes compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from prefixaudit.chain.recipes import (
    RECIPES,
    ChainOptions,
    chain_of,
    comparable_groups,
    hashing_tier,
)
from prefixaudit.engines import ENGINES, load_profile
from prefixaudit.errors import UsageError

CASES = Path(__file__).parents[2] / "data" / "cases"


def test_every_recipe_that_a_profile_names_exists() -> None:
    named = {
        tier.hash.recipe
        for name in ENGINES
        for tier in load_profile(name).tiers
        if tier.hash is not None
    }

    assert named <= set(RECIPES)


def test_b028_processes_whose_hashes_compare() -> None:
    folder = CASES / "B028-hash-seed-per-process"
    instances = json.loads((folder / "instances.json").read_text(encoding="utf-8"))
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))

    groups = comparable_groups(
        [
            (
                load_profile(f"vllm@{instance['vllm']}"),
                ChainOptions(
                    algorithm=instance["prefix_caching_hash_algo"],
                    seed=instance["PYTHONHASHSEED"],
                ),
            )
            for instance in instances
        ]
    )

    names = [[instances[position]["instance"] for position in group] for group in groups]
    assert names == expected["answer"]["groups_with_comparable_block_hashes"]


def test_releases_that_write_adapters_differently_do_not_compare() -> None:
    old, new = load_profile("vllm@0.30.0"), load_profile("vllm@0.31.0")

    assert comparable_groups([(old, ChainOptions()), (new, ChainOptions())]) == ((0,), (1,))


def test_an_array_of_token_ids_hashes_like_a_list() -> None:
    profile = load_profile("vllm@0.33.0")

    of_array = chain_of(np.arange(64, dtype=np.uint32), profile)

    assert of_array == chain_of(list(range(64)), profile)
    assert len(of_array.blocks) == 64 // 16


def test_an_engine_that_compares_tokens_has_no_hashes() -> None:
    with pytest.raises(UsageError, match="has no block hashes"):
        chain_of([1], load_profile("trtllm"))


def test_an_unknown_tier_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known: in-process, multiprocess"):
        hashing_tier(load_profile("lmcache"), "inprocess")


def test_a_block_size_below_one_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="block size 0"):
        chain_of([1], load_profile("vllm@0.33.0"), block_size=0)
