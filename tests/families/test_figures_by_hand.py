"""One figure a family, worked out by hand from the shapes of its config."""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.cost.flops import prefill_flops
from prefixaudit.cost.memory import kv_bytes_per_token, state_bytes
from prefixaudit.cost.weights import num_parameters
from prefixaudit.families import FAMILIES, describe
from tests.cost.golden import golden_records, published_config

RECORDS = golden_records()


@pytest.mark.parametrize(
    ("config", "record"), [item[1:] for item in RECORDS], ids=[item[0] for item in RECORDS]
)
def test_parameters_equal_those_of_the_built_model(
    config: dict[str, Any], record: dict[str, Any]
) -> None:
    assert num_parameters(describe(config)) == record["parameters_total"]


# Published totals, in words of the model cards or papers.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("deepseek-v3", 671.03e9),
        ("gpt-oss-20b", 20.91e9),
        ("gpt-oss-120b", 116.83e9),
        ("kimi-k2-instruct", 1026.4e9),
        ("phi-3.5-mini-instruct", 3_821_079_552),
    ],
)
def test_parameters_agree_with_published_counts(name: str, parameters: float) -> None:
    assert num_parameters(describe(published_config(name))) == pytest.approx(parameters, rel=3e-4)


# Two layers of hidden size 64, 4 query and 2 KV heads of 16: q and o 64*64, k and v 64*32 each,
# so the projections are 2 * 12,288 FLOPs a token and layer, gated MLPs of 96 wide 6 * 64 * 96.
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 100,
}
PROJECTIONS = 2 * 2 * (2 * 64 * 64 + 2 * 64 * 32)
MLP = 2 * 6 * 64 * 96


@pytest.mark.parametrize(
    "model_type",
    [
        "llama", "granite", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "gemma", "gemma2",
        "gemma3_text", "olmo2", "olmo3", "cohere", "cohere2", "exaone4", "glm", "glm4", "ernie4_5",
        "ministral3", "qwen3_vl_text", "seed_oss", "hunyuan_v1_dense",
    ],
)  # fmt: skip
def test_dense_families_cost_their_projections_and_mlps(model_type: str) -> None:
    flops = prefill_flops(describe({"model_type": model_type, **SMALL}), 1, 0)

    assert flops["attn_proj"] == PROJECTIONS
    assert flops["dense_mlp"] == MLP
    assert flops["attn_core"] == 2 * 4 * 4 * 16  # one pair a layer
    assert flops["lm_head"] == 2 * 64 * 100


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("mixtral", {"num_local_experts": 8}),
        ("phimoe", {"num_local_experts": 8}),
        ("gpt_oss", {"num_local_experts": 8, "num_experts_per_tok": 2}),
        ("minimax_m2", {"num_local_experts": 8, "num_experts_per_tok": 2}),
        ("granitemoe", {"num_local_experts": 8}),
        ("olmoe", {"num_experts": 8, "num_experts_per_tok": 2}),
        ("qwen3_moe", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}),
        (
            "ernie4_5_moe",
            {
                "moe_num_experts": 8,
                "moe_k": 2,
                "moe_intermediate_size": 96,
                "moe_layer_start_index": 0,
            },
        ),
        (
            "glm4_moe",
            {
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 96,
                "first_k_dense_replace": 0,
            },
        ),
    ],
)
def test_experts_cost_those_that_a_token_passes(model_type: str, fields: dict[str, Any]) -> None:
    """Two of eight experts of width 96 in each of two layers, and a router of 64 by 8."""
    flops = prefill_flops(describe({"model_type": model_type, **SMALL, **fields}), 1, 0)

    assert flops["experts"] == 2 * MLP
    assert flops["router"] == 2 * 2 * 64 * 8


@pytest.mark.parametrize("model_type", ["arcee", "nemotron"])
def test_mlps_without_a_gate_cost_two_thirds(model_type: str) -> None:
    flops = prefill_flops(describe({"model_type": model_type, **SMALL}), 1, 0)

    assert flops["dense_mlp"] == MLP * 2 // 3


def test_dots_has_dense_layers_first_and_shared_experts() -> None:
    fields = {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 96,
        "first_k_dense_replace": 1,
    }
    flops = prefill_flops(describe({"model_type": "dots1", **SMALL, **fields}), 1, 0)

    assert (flops["dense_mlp"], flops["experts"], flops["shared"]) == (MLP // 2, MLP, MLP // 2)


def test_latent_attention_caches_one_latent_whatever_its_heads() -> None:
    spec = describe({**published_config("deepseek-v3"), "num_key_value_heads": 1})

    # 61 layers of (512 + 64) bf16 elements.
    assert kv_bytes_per_token(spec) == 61 * (512 + 64) * 2


def test_glm5_layers_that_share_a_selection_have_no_indexer() -> None:
    config = {**published_config("glm-5"), "indexer_types": ["full"] * 3 + ["shared"] * 75}

    # 78 latents, 3 indexer keys.
    assert kv_bytes_per_token(describe(config)) == (78 * (512 + 64) + 3 * 128) * 2


def test_llama4_computes_one_expert_and_the_shared_one() -> None:
    flops = prefill_flops(describe(published_config("llama-4-maverick")), 1, 0)

    # 24 sparse layers of 8,192 wide experts, 24 dense ones of 16,384.
    assert flops["experts"] == flops["shared"] == 24 * 6 * 5120 * 8192
    assert flops["dense_mlp"] == 24 * 6 * 5120 * 16_384


def test_jamba_state_is_inner_by_state_size() -> None:
    spec = describe({"model_type": "jamba", "torch_dtype": "bfloat16"})

    # 28 of 32 layers: 8,192 channels by 16, and 3 columns of the convolution, bf16.
    assert state_bytes(spec) == 28 * 8192 * (16 + 3) * 2


def test_nemotron_counts_the_layers_of_its_pattern() -> None:
    spec = describe({**published_config("nemotron-3-nano-30b-a3b"), "num_hidden_layers": 1})

    assert spec.num_layers == 52
    # 23 Mamba layers keep a float32 state unless the file says otherwise.
    assert spec.state_dtype == "float32"


def test_falcon_h1_runs_attention_and_mamba_in_every_layer() -> None:
    spec = describe({"model_type": "falcon_h1"})

    assert all(len(layer.mixers) == 2 for layer in spec.layers)


def test_lfm2_rounds_the_width_of_its_mlp() -> None:
    # int(2 * 12,288 / 3) = 8,192, a multiple of 256 already.
    flops = prefill_flops(describe({"model_type": "lfm2", "num_hidden_layers": 1}), 1, 0)

    assert flops["dense_mlp"] == 6 * 2560 * 8192


def test_kimi_linear_reads_the_nested_shape_of_its_delta_layers() -> None:
    nested = {
        "num_heads": 16,
        "head_dim": 64,
        "short_conv_kernel_size": 4,
        "full_attn_layers": [2, 4],
        "kda_layers": [1, 3],
    }
    spec = describe(
        {
            "model_type": "kimi_linear",
            "num_hidden_layers": 4,
            "linear_attn_config": nested,
            "dtype": "bfloat16",
        }
    )

    # Two latents; two float32 states of 16 * 64 * 64 and 3 * 3 * 16 * 64 bf16 convolution columns.
    assert kv_bytes_per_token(spec) == 2 * (512 + 64) * 2
    assert state_bytes(spec) == 2 * (16 * 64 * 64 * 4 + 3 * 3 * 16 * 64 * 2)


def test_granite_hybrid_without_routed_experts_has_its_shared_mlp_only() -> None:
    spec = describe(
        {
            "model_type": "granitemoehybrid",
            "num_hidden_layers": 2,
            "num_local_experts": 0,
            "layer_types": ["mamba", "attention"],
        }
    )

    assert prefill_flops(spec, 1, 0)["dense_mlp"] == 2 * 6 * 4096 * 1024


def test_gemma4_experts_come_beside_the_dense_mlp() -> None:
    flops = prefill_flops(describe(published_config("gemma-4-26b-a4b")), 1, 0)

    assert flops["dense_mlp"] == 30 * 6 * 2816 * 2112
    assert flops["experts"] == 30 * 8 * 6 * 2816 * 704


def test_every_family_has_a_title_and_types() -> None:
    claimed: list[str] = []
    for family in FAMILIES.values():
        assert family.title
        claimed += family.model_types

    assert len(claimed) == len(set(claimed))


def test_description_names_its_family_as_it_is_listed() -> None:
    assert describe({"model_type": "ernie4_5"}).family == "ernie4-5"
    assert "ernie4-5" in FAMILIES.names
