"""Reading config.json: absent is not null, defaults, nesting, spellings, unknown types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.model import Attention, ModelSpec
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.errors import ConfigurationError
from prefixaudit.families import describe, describe_cache, known_types
from tests.cost.golden import DATA, golden, golden_records, published_config

PUBLISHED = sorted(path.name for path in (DATA / "model-configs").iterdir())


def windows(spec: ModelSpec) -> list[int | None]:
    return [
        mixer.window
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_config_is_described(name: str) -> None:
    spec = describe(published_config(name))

    assert spec.num_layers > 0


def test_missing_window_of_mistral_is_the_class_default_and_null_is_none() -> None:
    config: dict[str, Any] = {"model_type": "mistral"}

    assert set(windows(describe(config))) == {4096}
    assert set(windows(describe({**config, "sliding_window": None}))) == {None}


def test_windows_of_qwen2_count_only_when_switched_on_and_then_in_upper_layers() -> None:
    config: dict[str, Any] = {
        "model_type": "qwen2",
        "num_hidden_layers": 4,
        "sliding_window": 32,
        "max_window_layers": 3,
    }

    assert windows(describe(config)) == [None] * 4
    assert windows(describe({**config, "use_sliding_window": True})) == [None, None, None, 32]


def test_gemma3_takes_its_vocabulary_and_pattern_from_the_class() -> None:
    spec = describe(published_config("gemma-3-27b-it"))

    assert spec.vocab_size == 262_208
    assert [window is None for window in windows(spec)][:12] == [
        *[False] * 5, True, *[False] * 5, True,
    ]  # fmt: skip
    assert spec.tied_embeddings


def test_head_dim_is_read_where_it_is_given_and_derived_where_it_is_null() -> None:
    given = describe(published_config("mistral-small-24b-instruct-2501"))
    derived = describe({**published_config("llama-3.1-8b"), "head_dim": None})

    assert _attention(given).head_dim == 128  # 5120 / 32 would be 160
    assert _attention(derived).head_dim == 4096 // 32


def test_null_number_of_kv_heads_is_one_a_query_head() -> None:
    config = {**published_config("llama-3.1-8b"), "num_key_value_heads": None}

    assert _attention(describe(config)).num_kv_heads == 32


def _attention(spec: ModelSpec) -> Attention:
    mixer = spec.layers[0].mixers[0]
    assert isinstance(mixer, Attention)
    return mixer


def test_dtype_stands_at_either_level_under_either_name() -> None:
    assert describe(published_config("gemma-3-27b-it")).dtype == "bfloat16"  # outer torch_dtype
    assert describe(published_config("qwen3-vl-8b-instruct")).dtype == "bfloat16"  # inner dtype
    assert describe(published_config("gpt-oss-20b")).dtype is UNKNOWN


def test_unknown_type_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        describe({**published_config("llama-3.1-8b"), "model_type": "lama"})

    message = str(caught.value)
    assert "unknown model type 'lama'" in message
    assert "did you mean 'llama'?" in message
    assert "deepseek_v3" in message


def test_unknown_type_inside_text_config_is_refused_too() -> None:
    outer = {"model_type": "gemma3", "text_config": {"model_type": "gemma9_text"}}

    with pytest.raises(ConfigurationError, match="gemma9_text"):
        describe(outer)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("num_hidden_layers", "32", "a whole number of 1 or more"),
        ("num_hidden_layers", 10**9, "4,096 or less"),
        ("hidden_size", -1, "a whole number of 1 or more"),
        ("hidden_size", True, "a whole number of 1 or more"),
        ("attention_bias", "yes", "true or false"),
    ],
)
def test_wrong_values_are_named_with_what_was_expected(
    field: str, value: object, expected: str
) -> None:
    config = {**published_config("llama-3.1-8b"), field: value}

    with pytest.raises(ConfigurationError) as caught:
        describe(config)

    assert f"`{field}`" in str(caught.value)
    assert expected in str(caught.value)


def test_layer_types_need_one_name_a_layer() -> None:
    config = {"model_type": "gemma2", "num_hidden_layers": 3, "layer_types": ["full_attention"]}

    with pytest.raises(ConfigurationError, match="a list of 3 names"):
        describe(config)


def test_config_without_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`model_type` is missing"):
        describe({"hidden_size": 64})


def test_nested_text_part_takes_the_outer_types_default() -> None:
    text = {**published_config("gemma-3-27b-it")["text_config"]}
    text.pop("model_type")

    spec = describe({"model_type": "gemma3", "text_config": text})

    assert spec.model_type == "gemma3_text"


def test_flat_file_of_a_vision_model_is_its_text_part() -> None:
    """Files of Qwen2.5-VL written by transformers 4 hold the text fields at the outer level."""
    spec = describe(
        {
            "model_type": "qwen2_5_vl",
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "intermediate_size": 11_008,
            "vocab_size": 151_936,
            "tie_word_embeddings": True,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        }
    )

    assert spec.model_type == "qwen2_5_vl_text"
    assert spec.tied_embeddings
    assert spec.position.rotary[0][1].rope_type == "default"


def test_kimi_k2_is_deepseek_v3_in_form() -> None:
    config = published_config("kimi-k2-instruct")

    kimi, deepseek = describe(config), describe({**config, "model_type": "deepseek_v3"})

    assert kimi.layers == deepseek.layers


def test_draft_layers_are_counted_apart() -> None:
    spec = describe(published_config("deepseek-v3"))

    assert spec.num_layers == 61
    assert spec.num_draft_layers == 1


def test_experts_under_other_names_mean_the_same() -> None:
    config = published_config("mixtral-8x7b")
    renamed = {**config, "num_experts": config["num_local_experts"]}
    del renamed["num_local_experts"]

    assert describe(renamed) == describe(config)


def test_cache_of_an_unknown_type_is_known_where_its_file_names_everything() -> None:
    config = json.loads((DATA / "cases/B051-kv-size-of-a-hybrid-model/config.json").read_text())

    cache = describe_cache(config)

    assert len(cache.mixers) == 24
    with pytest.raises(ConfigurationError, match="reefswa"):
        describe(config)


@pytest.mark.parametrize("missing", ["head_dim", "num_key_value_heads", "sliding_window"])
def test_cache_of_an_unknown_type_is_not_guessed(missing: str) -> None:
    config = json.loads((DATA / "cases/B051-kv-size-of-a-hybrid-model/config.json").read_text())
    del config[missing]

    with pytest.raises(ConfigurationError, match="unknown model type 'reefswa'"):
        describe_cache(config)


def test_cache_of_an_unknown_type_with_other_caches_is_refused() -> None:
    config = json.loads((DATA / "cases/B051-kv-size-of-a-hybrid-model/config.json").read_text())

    with pytest.raises(ConfigurationError, match="reefswa"):
        describe_cache({**config, "kv_lora_rank": 512})


def test_every_type_with_its_class_defaults_alone_is_described_or_refused_in_words() -> None:
    """Nothing but a model type: what transformers would build from it, or a clear refusal."""
    refused = {}
    for model_type in known_types():
        try:
            describe({"model_type": model_type})
        except ConfigurationError as error:
            refused[model_type] = str(error)

    # Their classes have no default for experts, experts a token, or the kinds of layers.
    assert set(refused) == {"deepseek_v2", "dots1", "lfm2_moe"}
    assert all("config.json: `" in message for message in refused.values())


def test_all_goldens_give_equal_descriptions_each_time() -> None:
    for _, config, _ in golden_records():
        assert describe(config) == describe(json.loads(json.dumps(config)))


def test_golden_of_a_nested_model_is_untied_as_its_text_part() -> None:
    config, _ = golden("mistral3-nested-text")

    assert not describe(config).tied_embeddings
    # transformers 5 writes the outer class's default beside the text part's own word.
    saved = {
        **config,
        "tie_word_embeddings": True,
        "text_config": {**config["text_config"], "tie_word_embeddings": False},
    }
    assert not describe(saved).tied_embeddings


CONFIGS = [config for _, config, _ in golden_records()]
FIELDS = sorted(
    {name for config in CONFIGS for name in {**config, **config.get("text_config", {})}}
    | {"rope_scaling", "rope_parameters", "per_layer_config", "linear_attn_config", "layer_types"}
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 10**13)
    | st.floats()
    | st.sampled_from(["", "auto", "yarn", "longrope", "full_attention", "MEM*"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["rope_type", "type", "factor", "rope_theta", "full_attention", "0"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


@given(
    config=st.sampled_from(CONFIGS),
    changes=st.dictionaries(st.sampled_from(FIELDS), json_values, min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_any_field_with_any_value_is_described_or_refused_in_words(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    text = config.get("text_config")
    changed = {**config, "text_config": {**text, **changes}} if text else {**config, **changes}

    refusals = []
    for reader in (describe, describe_cache):
        try:
            reader(changed)
        except ConfigurationError as error:
            refusals.append(str(error))

    assert all(message.startswith("config.json: ") for message in refusals)
