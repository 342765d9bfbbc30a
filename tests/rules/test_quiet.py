"""Deployments in which all is well, or all is known: no finding, or none that is idle."""

from __future__ import annotations

from typing import Any

from prefixaudit.audit.findings import findings_of
from prefixaudit.audit.rules import load_rules
from tests.rules.subjects import subject_of

_RULES = load_rules()
_MODEL = {
    "name": "harbor-8b",
    "revision": "5c1f",
    "dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "kv_scales": False,
    "quantization": False,
    "max_model_len": 4096,
    "config": {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "max_position_embeddings": 4096,
    },
}
_SETTINGS: dict[str, Any] = {
    "allow_runtime_lora_updating": False,
    "async_scheduling": True,
    "calculate_kv_scales": False,
    "enable_lora": False,
    "enable_mm_embeds": False,
    "enable_prefix_caching": True,
    "enable_prompt_embeds": False,
    "enable_tower_connector_lora": False,
    "enable_weight_updates": False,
    "kv_connector": False,
    "pipeline_parallel_size": 1,
    "prefix_caching_hash_algo": "sha256_cbor",
    "python_hash_seed": "0",
    "speculative_method": False,
}


def _findings(tables: dict[str, Any]) -> list[tuple[str, str]]:
    found = findings_of(_RULES, subject_of(tables))
    return [(finding.rule, finding.observation.verdict) for finding in found]


def test_known_server_without_a_store_gives_no_finding() -> None:
    engine = {"name": "vllm", "version": "0.33.0", "settings": _SETTINGS}

    assert _findings({"engine": engine, "model": _MODEL}) == []


def test_equal_servers_that_share_a_store_give_no_finding() -> None:
    server = {"engine": "vllm", "version": "0.33.0", "settings": _SETTINGS, "model": _MODEL}

    assert (
        _findings(
            {
                "server": [{**server, "name": "a"}, {**server, "name": "b"}],
                "tier": [{"kind": "mooncake"}, {"kind": "vllm-file-tier"}, {"kind": "dynamo"}],
                "tenant": {"source": "header:x-tenant-id"},
            }
        )
        == []
    )


def test_log_without_an_engine_raises_no_question_about_releases() -> None:
    assert _findings({}) == []


def test_server_of_which_only_the_release_is_known_gives_questions_only() -> None:
    found = _findings({"engine": {"name": "vllm", "version": "0.33.0"}})

    assert found
    assert {verdict for _, verdict in found} == {"inconclusive"}


def test_two_servers_of_a_mooncake_store_with_other_rope_scaling_are_told() -> None:
    """One fault, one high finding: the names of the model are equal, the encodings aren't."""
    settings = {"hf_overrides": False, "rope_theta": False, "enable_lora": False}
    server = {"engine": "sglang", "version": "0.5.23", "model": {"name": "harbor-8b"}}
    found = _findings(
        {
            "server": [
                {**server, "name": "a", "settings": {**settings, "rope_scaling": False}},
                {
                    **server,
                    "name": "b",
                    "settings": {
                        **settings,
                        "rope_scaling": '{"rope_type": "yarn", "factor": 4.0}',
                    },
                },
            ],
            "tier": [{"kind": "mooncake"}],
        }
    )

    assert [rule for rule, verdict in found if verdict == "found"] == [
        "store-shared-across-position-encodings"
    ]


def test_old_server_of_many_tenants_with_a_store_and_adapters_is_told() -> None:
    engine = {
        "name": "vllm",
        "version": "0.10.0",
        "settings": {"enable_lora": True, "prefix_caching_hash_algo": "sha256"},
    }
    found = _findings(
        {
            "engine": engine,
            "tier": [{"kind": "lmcache", "version": "0.3.15"}],
            "tenant": {"source": "header:x-tenant-id"},
        }
    )

    high = {rule for rule, verdict in found if verdict == "found"}
    assert {"store-key-without-adapter", "store-key-without-salt"} <= high
