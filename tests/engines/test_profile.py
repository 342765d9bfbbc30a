"""Engine profiles: facts by version, and what is said about versions that weren't read."""

from __future__ import annotations

import pytest
from packaging.version import Version

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.engines import ENGINES, describe_engines, describe_profile, load_profile
from prefixaudit.errors import UsageError
from prefixaudit.tables import TomlDocument


def _all_ranges() -> list[str]:
    """Every engine, and every release at which a range of it starts or ends."""
    specs = []
    for name in ENGINES:
        specs.append(name)
        source, text = ENGINES[name]
        tables = TomlDocument(source, text).root.data.get("versions", [])
        bounds = {table[key] for table in tables for key in ("from", "before") if key in table}
        specs += [f"{name}@{bound}" for bound in sorted(bounds, key=Version)]
    return specs


@pytest.mark.parametrize("spec", _all_ranges())
def test_every_range_of_every_profile_loads_and_can_be_described(spec: str) -> None:
    profile = load_profile(spec)

    assert set(profile.key_fields) | set(profile.missing_fields) == set(IDENTITY_FIELDS)
    assert describe_profile(profile).sections


def test_list_names_every_engine() -> None:
    assert [row.name for row in describe_engines()] == list(ENGINES)


@pytest.mark.parametrize(
    ("version", "key_fields"),
    [
        # ENGINES.md 1.2, line by line.
        ("0.8.5", ("lora_name",)),
        ("0.9.0", ("lora_name", "cache_salt")),
        ("0.11.0", ("lora_name", "cache_salt")),
        ("0.11.1", ("lora_name", "prompt_embeds", "cache_salt")),
        ("0.30.0", ("lora_name", "prompt_embeds", "cache_salt")),
        ("0.31.0", ("lora_name", "lora_path", "prompt_embeds", "cache_salt")),
    ],
)
def test_vllm_key_fields_by_version(version: str, key_fields: tuple[str, ...]) -> None:
    assert load_profile(f"vllm@{version}").key_fields == key_fields


@pytest.mark.parametrize(
    ("version", "regime"),
    [("0.23.0", "all-to-back"), ("0.23.9", "all-to-back"), ("0.24.0", "unhashed-to-front")],
)
def test_vllm_eviction_regime_changes_at_0_24(version: str, regime: str) -> None:
    pool = load_profile(f"vllm@{version}").pool

    assert pool is not None
    assert pool.eviction_regime == regime


def test_the_base_identity_is_missing_from_vllms_key_but_held_apart_by_the_process() -> None:
    profile = load_profile("vllm@0.33.0")

    assert {"model", "model_revision", "dtype", "kv_cache_dtype"} <= set(profile.missing_fields)
    assert {"model", "model_revision", "dtype", "kv_cache_dtype"} <= set(profile.process_fields)
    assert "lora_revision" not in profile.process_fields


@pytest.mark.parametrize(
    ("version", "is_ambiguous"),
    [("0.11.0", False), ("0.11.1", True), ("0.30.1", True), ("0.31.0", False)],
)
def test_salt_and_adapter_name_can_collide_only_in_some_releases(
    version: str, is_ambiguous: bool
) -> None:
    tier = load_profile(f"vllm@{version}").tiers[0]

    assert (("cache_salt", "lora_name") in {a.fields for a in tier.ambiguities}) is is_ambiguous


def _note(profile: EngineProfile) -> str:
    (note,) = profile.notes
    return note


def test_no_version_takes_the_newest_known_and_says_so() -> None:
    profile = load_profile("vllm")

    assert profile.version is None
    assert profile.facts_version == "0.33.0"
    assert "0.33.0, the newest known" in _note(profile)


def test_a_version_that_was_not_read_takes_the_nearest_older_range_and_says_so() -> None:
    profile = load_profile("vllm@0.15.2")

    assert profile.profile_version == "0.14.0"
    assert "nearest older range" in _note(profile)


def test_a_newer_version_than_all_known_says_so() -> None:
    assert "newer than all known" in _note(load_profile("vllm@9.0"))


def test_a_known_version_has_no_note() -> None:
    assert load_profile("vllm@0.27.1").notes == ()


@pytest.mark.parametrize("spec", ["vlm", "vllm@", "vllm@latest", "vllm@0.1.0"])
def test_a_wrong_engine_or_version_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError):
        load_profile(spec)
