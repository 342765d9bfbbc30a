"""Facts of servers, and how a rule's needs are held against them."""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.audit.needs import answer_needs, is_as_expected, is_in_range
from prefixaudit.audit.server_facts import Fact, fact_of
from prefixaudit.core.unknown import UNKNOWN
from tests.rules.subjects import one_server, subject_of


@pytest.mark.parametrize(
    ("value", "expected", "holds"),
    [
        (True, True, True),
        (False, True, False),
        (None, True, False),
        (None, False, True),
        (False, False, True),
        (UNKNOWN, True, None),
        (UNKNOWN, False, None),
        ("0", True, True),  # a seed of 0 is set
        (0, True, True),
        ((), True, False),
        (("a",), True, True),
        ("sha256", "sha256", True),
        ("sha256_cbor", "sha256", False),
        ("sha256_cbor", "sha256*", True),
        ("sha256", ["xxhash", "sha256"], True),
        (UNKNOWN, ["xxhash", "sha256"], None),
        (("a", "b"), "b", True),
        (("a", "b"), "c", False),
        ((), "c", False),
        (None, "c", False),
        ("3.12.3", ">=3.12", True),
        ("3.9", ">=3.12", False),  # as versions, not as text
        (2, ">1", True),
        (1, ">1", False),
        (0.5, "<1", True),
        (10, "<=10", True),
        ("unparsable", ">1", None),
        (None, ">1", False),
        (1, 1, True),
        (2, 1, False),
        (True, 1, False),  # true is no number
        ("x", 1, False),
    ],
)
def test_fact_is_held_against_what_a_rule_expects(
    value: Fact, expected: Any, holds: bool | None
) -> None:
    assert is_as_expected(value, expected) is holds


@pytest.mark.parametrize(
    ("version", "since", "before", "is_in"),
    [
        ("0.30.0", "0.11.1", "0.31.0", True),
        ("0.11.0", "0.11.1", "0.31.0", False),
        ("0.31.0", "0.11.1", "0.31.0", False),
        ("0.11.1rc2", "0.11.1", None, True),
        ("0.31.0.dev7+g1", None, "0.31.0", False),
        ("v0.30.0", None, "0.31.0", True),
        ("0.9", None, "0.10", True),  # as versions, not as text
        (None, None, None, True),
        (None, "0.1", None, None),
        ("nightly", "0.1", None, None),
    ],
)
def test_range_holds_its_first_release_and_not_its_last(
    version: str | None, since: str | None, before: str | None, is_in: bool | None
) -> None:
    assert is_in_range(version, since, before) is is_in


def test_one_need_that_is_false_decides_over_all_that_is_unknown() -> None:
    subject = one_server("vllm", "0.33.0", {"enable_lora": False})

    answer = answer_needs(
        {"python_version": ">=3.12", "enable_lora": True}, subject.servers[0], subject
    )

    assert answer.holds is False


def test_unknown_needs_are_named_and_only_they() -> None:
    subject = one_server("vllm", "0.33.0", {"enable_lora": True})

    answer = answer_needs(
        {"python_version": ">=3.12", "enable_lora": True}, subject.servers[0], subject
    )

    assert (answer.holds, answer.unknown) == (None, ("python_version",))


def test_seed_of_the_hashes_is_never_shown() -> None:
    subject = one_server("vllm", "0.8.4", {"python_hash_seed": "canary-7341"})

    answer = answer_needs({"hash_seed": True}, subject.servers[0], subject)

    assert answer.known == ("hash_seed is set",)


def _fact(name: str, tables: dict[str, Any]) -> Fact:
    subject = subject_of(tables)
    return fact_of(name, subject.servers[0], subject)


_LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("name", "tables", "value"),
    [
        # The default counts only where the option is known to be unset.
        ("hash_algorithm", {"engine": {"name": "vllm", "version": "0.33.0"}}, UNKNOWN),
        (
            "hash_algorithm",
            {
                "engine": {
                    "name": "vllm",
                    "version": "0.10.1",
                    "settings": {"prefix_caching_hash_algo": False},
                }
            },
            "builtin",
        ),
        ("hash_algorithm", {"engine": {"name": "vllm", "version": "0.7.3"}}, "builtin"),
        (
            "hash_algorithm",
            {"engine": {"name": "vllm", "settings": {"prefix_caching_hash_algo": False}}},
            UNKNOWN,
        ),
        ("enable_lora", {"engine": {"name": "vllm"}, "adapters": {"sql": "/a"}}, True),
        ("enable_lora", {"engine": {"name": "vllm"}}, UNKNOWN),
        ("serves_media", {"engine": {"name": "vllm"}, "model": {"config": _LLAMA}}, False),
        (
            "serves_media",
            {"engine": {"name": "vllm"}, "model": {"config": {**_LLAMA, "vision_config": {}}}},
            True,
        ),
        (
            "serves_media",
            {
                "engine": {"name": "vllm", "settings": {"language_model_only": True}},
                "model": {"config": {**_LLAMA, "vision_config": {}}},
            },
            False,
        ),
        ("serves_media", {"engine": {"name": "vllm"}}, UNKNOWN),
        ("has_tenants", {"engine": {"name": "vllm"}, "tenant": {"source": "api-key"}}, True),
        ("has_tenants", {"engine": {"name": "vllm"}, "identity": {"tenant": "acme"}}, False),
        ("has_tenants", {"engine": {"name": "vllm"}}, UNKNOWN),
        ("is_recurrent", {"engine": {"name": "vllm"}, "model": {"config": _LLAMA}}, False),
        ("rope_type", {"engine": {"name": "vllm"}, "model": {"config": _LLAMA}}, "default"),
        ("position_regime", {"engine": {"name": "vllm"}, "model": {"config": _LLAMA}}, None),
        ("length_rule", {"engine": {"name": "vllm", "version": "0.11.0"}}, UNKNOWN),
        ("length_rule", {"engine": {"name": "vllm", "version": "0.11.1"}}, "max-model-len"),
        ("fp8_kv", {"engine": {"name": "vllm"}, "model": {"kv_cache_dtype": "fp8_e5m2"}}, True),
        ("fp8_kv", {"engine": {"name": "vllm"}, "model": {"kv_cache_dtype": "bfloat16"}}, False),
        ("fp8_kv", {"engine": {"name": "vllm"}}, UNKNOWN),
        ("event_encoding", {"engine": {"name": "vllm", "version": "0.23.0"}}, "array"),
        ("event_encoding", {"engine": {"name": "vllm", "version": "0.24.0"}}, "map"),
        (
            "block_size",
            {"engine": {"name": "vllm", "block_size": 32}, "tier": [{"kind": "llm-d"}]},
            32,
        ),
        ("stores", {"engine": {"name": "vllm"}, "tier": []}, ()),
        (
            "stores",
            {"engine": {"name": "vllm"}, "tier": [{"kind": "lmcache"}, {"kind": "llm-d"}]},
            ("lmcache", "lmcache/in-process"),
        ),
        (
            "routers",
            {"engine": {"name": "vllm"}, "tier": [{"kind": "lmcache"}, {"kind": "llm-d"}]},
            ("llm-d", "llm-d/index"),
        ),
        (
            "connectors",
            {
                "engine": {
                    "name": "vllm",
                    "settings": {
                        "kv_connector": "MultiConnector",
                        "kv_connectors": ["NixlConnector", "LMCacheConnectorV1"],
                    },
                }
            },
            ("MultiConnector", "NixlConnector", "LMCacheConnectorV1"),
        ),
    ],
)
def test_fact_follows_from_what_the_deployment_says(
    name: str, tables: dict[str, Any], value: Fact
) -> None:
    assert _fact(name, tables) == value
