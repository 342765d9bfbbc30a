"""What changed between releases, and how an engine profile says so."""

from __future__ import annotations

import pytest

from prefixaudit.engines import load_profile
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.pool.vllm.rules import GroupRules, pool_rules, release_rules, release_rules_of


@pytest.mark.parametrize(
    ("version", "free_order", "big_block_key", "retention"),
    [
        ("0.11.2", "all-last", "concatenated", None),
        ("0.23.0", "all-last", "concatenated", None),
        ("0.24.0", "unhashed-first", "last", None),
        ("0.29.1", "unhashed-first", "last", None),
        ("0.30.0", "unhashed-first", "last", 0),
        ("0.33.0", "unhashed-first", "last", 0),
    ],
)
def test_rules_of_a_release(
    version: str, free_order: str, big_block_key: str, retention: int | None
) -> None:
    rules = release_rules(version)

    assert (rules.free_order, rules.big_block_key) == (free_order, big_block_key)
    assert rules.retention_default_tokens == retention


@pytest.mark.parametrize(
    ("version", "tails", "pins", "both_ends"),
    [
        ("0.25.1", False, False, False),
        ("0.26.0", True, True, False),
        ("0.29.0", True, True, False),
        ("0.30.0", True, True, True),
    ],
)
def test_rules_of_sparse_groups_came_one_by_one(
    version: str, tails: bool, pins: bool, both_ends: bool
) -> None:
    """As read in the releases' cache managers, and seen in runs of each of them."""
    rules = release_rules(version)

    assert (rules.registers_tails, rules.pins_shared_prefixes) == (tails, pins)
    assert rules.eagle.retains_both_ends == both_ends


@pytest.mark.parametrize(
    ("version", "window_free_order", "mamba_split"),
    [
        ("0.22.0", "all-last", "last-block"),
        ("0.23.0", "unhashed-first", "last-block"),
        ("0.24.0", "unhashed-first", "last-block-or-shared"),
        ("0.25.1", "unhashed-first", "last-block-or-shared"),
        ("0.26.0", "unhashed-first", "stops-up-to-last"),
        ("0.27.0", "unhashed-first", "stops"),
        ("0.33.0", "unhashed-first", "stops"),
    ],
)
def test_rules_of_windows_and_recurrent_states_came_one_by_one(
    version: str, window_free_order: str, mamba_split: str
) -> None:
    """As read in the releases' cache managers and schedulers, and seen in runs of 0.22 to 0.26."""
    rules = release_rules(version)

    assert (rules.window_free_order, rules.mamba_split) == (window_free_order, mamba_split)


@pytest.mark.parametrize("version", ["0.11.2", "0.22.0", "0.23.0", "0.24.0", "0.30.0", "0.33.0"])
def test_engine_profile_says_the_same(version: str) -> None:
    assert release_rules_of(load_profile(f"vllm@{version}")) == release_rules(version)


def test_profile_of_another_engine_is_refused() -> None:
    with pytest.raises(UsageError):
        release_rules_of(load_profile("reference"))


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        release_rules("newest")


def test_sizes_are_gcd_and_lcm_unless_given() -> None:
    groups = (
        GroupRules(kind="full", block_size=32),
        GroupRules(kind="swa", block_size=48, window_tokens=64),
    )

    rules = pool_rules(release_rules("0.33.0"), groups)

    assert (rules.hash_block_size, rules.scheduler_block_size) == (16, 96)
    assert rules.retention_interval_tokens == 0


def test_eagle_without_a_marked_group_drops_in_all() -> None:
    groups = (
        GroupRules(kind="full", block_size=16),
        GroupRules(kind="full", block_size=16, drops_last_block=True),
    )
    release = release_rules("0.33.0")

    assert pool_rules(release, groups, use_eagle=True).dropping_groups == {1}
    assert pool_rules(release, groups[:1], use_eagle=True).dropping_groups == {0}
    assert pool_rules(release, groups[:1]).dropping_groups == frozenset()
