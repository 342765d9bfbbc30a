"""Engine profiles: facts by version, and what is said about versions that weren't read."""

from __future__ import annotations

import pytest
from packaging.version import Version

from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.engines import ENGINES, describe_engines, describe_profile, load_profile
from prefixaudit.errors import ConfigurationError, UsageError
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
        # From vLLM's own sources, release by release.
        ("0.6.6.post1", ()),
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


@pytest.mark.parametrize(
    ("version", "amount"), [("0.5.16", "need"), ("0.5.17", "shortfall"), ("0.5.23", "shortfall")]
)
def test_sglang_eviction_amount_changes_at_0_5_17(version: str, amount: str) -> None:
    pool = load_profile(f"sglang@{version}").pool

    assert pool is not None
    assert (pool.eviction_amount, pool.visibility) == (amount, "computed")


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("0.5.19", ("model",)),
        ("0.5.20", ("model", "lora_name", "lora_path", "cache_salt", "extra_key")),
    ],
)
def test_sglang_storage_keys_held_tokens_only_before_0_5_20(
    version: str, fields: tuple[str, ...]
) -> None:
    storage = load_profile(f"sglang@{version}").tier("storage")

    assert storage is not None
    assert storage.key_fields == fields
    assert storage.process_fields == ()


def test_lmcache_keys_a_salt_only_in_its_server_and_an_adapter_nowhere() -> None:
    in_process, server = load_profile("lmcache@0.5.6").tiers

    assert in_process.key_fields == ("model", "kv_cache_dtype")
    assert server.key_fields == ("model", "cache_salt", "extra_key")
    older = load_profile("lmcache@0.4.3").tier("multiprocess")
    assert older is not None
    assert older.key_fields == ("model",)


def test_a_store_keeps_what_the_hashes_of_its_engine_hold() -> None:
    old, new = load_profile("vllm-file-tier@0.30.0"), load_profile("vllm-file-tier@0.31.0")

    assert "lora_path" not in old.key_fields
    assert {"lora_name", "lora_path", "cache_salt", "model", "kv_cache_dtype"} <= set(
        new.key_fields
    )
    assert {"model_revision", "position_encoding", "kv_scales"} <= set(new.missing_fields)


def test_a_store_follows_the_host_it_is_given() -> None:
    host = load_profile("vllm@0.10.2")

    tier = load_profile("mooncake", host=host).tier("vllm")

    assert tier is not None
    assert tier.hash == host.tiers[0].hash
    assert "lora_path" not in tier.key_fields


@pytest.mark.parametrize(
    ("version", "encoding", "field", "is_in"),
    [
        ("0.8.5", None, "block_hashes", False),
        ("0.9.0", "array", "medium", False),
        ("0.10.2", "array", "medium", True),
        ("0.23.0", "array", "kv_cache_spec_kind", True),
        ("0.24.0", "map", "locality", False),
        ("0.26.0", "map", "locality", True),
        ("0.33.0", "map", "lookahead_token_ids", True),
    ],
)
def test_vllm_events_by_version(
    version: str, encoding: str | None, field: str, is_in: bool
) -> None:
    events = load_profile(f"vllm@{version}").events

    assert events is not None
    assert events.encoding == encoding
    assert (field in events.block_stored) is is_in


@pytest.mark.parametrize(("version", "interval"), [("0.29.0", None), ("0.30.0", 0)])
def test_vllm_retention_default(version: str, interval: int | None) -> None:
    groups = load_profile(f"vllm@{version}").groups

    assert groups is not None
    assert groups.default_retention_interval == interval


def test_the_key_and_what_it_lacks_come_first_in_a_description() -> None:
    described = describe_profile(load_profile("vllm@0.33.0"))

    titles = [section.title for section in described.sections]
    assert titles[0].startswith("Key of pool")
    assert titles[1] == "Not in the key of pool"
    assert ("model_revision", "not in the key; constant within one process") in (
        described.sections[1].rows
    )


def test_all_problems_of_a_profile_are_reported_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "title = 1\nblock_size = 0\nmin_recomputed_tokens = 1\nsources = []\n"
        '[tiers.pool]\ntitle = "x"\nkind = "locl-pool"\n'
        '[tiers.pool.key.cache_sal]\nplacement = "first-block"\nform = "text"\n'
    )
    monkeypatch.setitem(ENGINES._loaded, "reference", ("engines/reference.toml", text))
    load_profile.cache_clear()

    with pytest.raises(ConfigurationError) as raised:
        load_profile("reference")

    load_profile.cache_clear()
    problems = "\n".join(raised.value.problems)
    assert "engines/reference.toml:1: title: is an integer; expected text" in problems
    assert "engines/reference.toml:2: block_size: is 0; expected 1 or more" in problems
    assert "did you mean 'local-pool'?" in problems
    assert "cache_sal: is no identity field" in problems


@pytest.mark.parametrize(
    ("version", "encoding", "fields"),
    [
        # Read in the releases themselves; the last field that each names.
        ("0.5.6", "array", "lora_id"),
        ("0.5.9", "array", "medium"),
        ("0.5.20", "map", "session_id"),
        ("0.5.23", "map", "lora_name"),
    ],
)
def test_sglang_events_by_version(version: str, encoding: str, fields: str) -> None:
    events = load_profile(f"sglang@{version}").events

    assert events is not None
    assert (events.encoding, events.block_stored[-1]) == (encoding, fields)
