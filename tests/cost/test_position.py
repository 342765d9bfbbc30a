"""Position encodings as identity: equal meaning, equal digest; which depend on length."""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.cost.position import length_dependence, position_digest
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe

from .golden import load_goldens, published_config

LLAMA: dict[str, Any] = {"model_type": "llama", "max_position_embeddings": 256}


def digest(**fields: Any) -> str:
    return position_digest(describe({**LLAMA, **fields}))


def test_spellings_of_transformers_4_and_5_are_equal() -> None:
    old = digest(rope_theta=500_000, rope_scaling={"type": "linear", "factor": 4})
    new = digest(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500_000.0})

    assert old == new


def test_defaults_are_filled_in() -> None:
    assert digest() == digest(rope_theta=10_000.0, rope_scaling=None)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert digest(rope_scaling=yarn) == digest(
        rope_scaling={**yarn, "beta_fast": 32, "beta_slow": 1}
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 10_001.0},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"partial_rotary_factor": 0.5},
        {"head_dim": 64},
    ],
)
def test_other_encodings_have_other_digests(fields: dict[str, Any]) -> None:
    assert digest(**fields) != digest()


def test_which_layers_rotate_is_part_of_it() -> None:
    config = {"model_type": "smollm3", "num_hidden_layers": 4}

    plain = position_digest(describe(config))
    other = position_digest(describe({**config, "no_rope_layers": [1, 1, 1, 1]}))

    assert plain != other


def test_longest_position_matters_only_where_the_type_reads_it() -> None:
    def of(length: int, kind: str) -> str:
        return digest(max_position_embeddings=length, rope_scaling={"type": kind, "factor": 2.0})

    assert of(256, "linear") == of(512, "linear")
    assert of(256, "dynamic") != of(512, "dynamic")


def test_revisions_of_phi_name_one_type_three_ways() -> None:
    config = {
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
        "max_position_embeddings": 131_072,
    }
    factors = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}

    digests = {
        position_digest(describe({**config, "rope_scaling": {"type": name, **factors}}))
        for name in ("su", "yarn", "longrope")
    }

    assert len(digests) == 1


@pytest.mark.parametrize("name", load_goldens()["rope_length_dependence"])
def test_measured_table_decides_which_types_depend_on_length(name: str) -> None:
    """Measured in transformers: the largest change of a prefix's keys in longer passes."""
    measured = load_goldens()["rope_length_dependence"][name]
    scaling: dict[str, Any] = {"rope_type": name, "factor": 4.0}
    if measured["original"] is not None:
        scaling["original_max_position_embeddings"] = measured["original"]
    if name == "longrope":
        scaling |= {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64}
    config = {
        **LLAMA,
        "max_position_embeddings": measured["max_position_embeddings"],
        "rope_scaling": None if name == "default" else scaling,
    }

    found = length_dependence(describe(config), engine="transformers")

    changes = measured["max_abs_diff_of_first_16_keys_vs_length_32"]
    depends = any(change > 0 for change in changes.values())
    assert (found.rule != "config-only") == depends
    assert found.is_safe == (measured["chunked_vs_single_pass"] == 0)
    if depends:
        longest_equal = max(int(length) for length, change in changes.items() if not change)
        assert found.threshold_tokens == longest_equal


def test_dynamic_is_static_in_engines_that_scale_one_table() -> None:
    spec = describe({**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 4.0}})

    assert length_dependence(spec, engine="vllm").rule == "config-only"
    assert length_dependence(spec, engine="sglang").rule == "config-only"
    assert length_dependence(spec, engine="transformers").rule == "exact-length"
    short = length_dependence(spec, engine="transformers", max_model_len=256)
    assert short.rule == "config-only"


PHI = describe(published_config("phi-3.5-mini-instruct"))


def test_longrope_in_vllm_goes_by_the_served_length() -> None:
    def rule(length: int | None) -> tuple[str, str | None]:
        found = length_dependence(PHI, engine="vllm", version="0.33.0", max_model_len=length)
        assert found.is_safe
        return found.rule, found.identity

    assert rule(4096) == ("max-model-len", "short")
    assert rule(4097) == ("max-model-len", "long")
    assert rule(None) == ("max-model-len", "long")  # the model's 131,072


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.11.0"), ("sglang", "0.5.23")])
def test_longrope_by_batch_is_unsafe_unless_lengths_stay_short(engine: str, version: str) -> None:
    long = length_dependence(PHI, engine=engine, version=version)
    short = length_dependence(PHI, engine=engine, version=version, max_model_len=4096)

    assert (long.rule, long.is_safe, long.threshold_tokens) == ("batch", False, 4096)
    assert (short.rule, short.is_safe) == ("config-only", True)


def test_longrope_in_transformers_is_one_of_two_regimes() -> None:
    found = length_dependence(PHI, engine="transformers")

    assert (found.rule, found.threshold_tokens, found.is_safe) == ("regime", 4096, False)


def test_models_without_rotary_depend_on_nothing() -> None:
    found = length_dependence(describe({"model_type": "jamba"}), engine="vllm")

    assert (found.rope_type, found.rule) == ("none", "config-only")


def test_words_are_no_version() -> None:
    with pytest.raises(ConfigurationError, match="'new' is not a version"):
        length_dependence(PHI, engine="vllm", version="new")
