"""[[server]] and [[tier]] tables: what they say of servers, stores and the requests' identities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefixaudit.core.identity import Identity
from prefixaudit.core.request import Request, Source, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Capacity, Deployment, Overrides, load_deployment
from prefixaudit.errors import ConfigurationError, UsageError


def deployment(tmp_path: Path, text: str) -> Deployment:
    path = tmp_path / "prefixaudit.toml"
    path.write_text(text)
    return load_deployment(path)


def request(model: str, node: str) -> Request:
    return Request(
        request_id="r",
        source=Source(path="log", line=1),
        prompt=TokenIds(token_ids=np.array([1], dtype=np.uint32)),
        identity=Identity(model=model),
        record={"node": node},
    )


def test_a_plain_file_has_no_servers_of_its_own(tmp_path: Path) -> None:
    found = deployment(tmp_path, '[engine]\nname = "vllm"\nversion = "0.10.0"\n')

    assert (found.servers, found.tiers) == ((), ())


def test_settings_of_one_engine_make_one_server(tmp_path: Path) -> None:
    found = deployment(tmp_path, '[engine]\nname = "vllm"\nsettings = { enable_lora = true }\n')

    assert [server.settings for server in found.servers] == [{"enable_lora": True}]


def test_false_is_unset_where_a_setting_is_no_flag(tmp_path: Path) -> None:
    found = deployment(
        tmp_path, "[[server]]\n[server.settings]\npython_hash_seed = false\nenable_lora = false\n"
    )

    assert found.servers[0].settings == {"python_hash_seed": None, "enable_lora": False}


def test_request_belongs_to_the_server_that_its_field_names(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [[server]]
        name = "a"
        match = { source = "field:node", values = ["n1", "n3"] }
        model = { dtype = "bfloat16" }
        [[server]]
        name = "b"
        match = { source = "field:node", values = ["n2"] }
        model = { dtype = "float16" }
        """,
    )

    servers = [found.complete(request("m", node)) for node in ("n1", "n2", "n3", "n4")]

    assert [r.server for r in servers] == ["a", "b", "a", UNKNOWN]
    assert [r.identity.dtype for r in servers] == ["bfloat16", "float16", "bfloat16", UNKNOWN]


def test_adapters_loaded_at_start_are_told_from_the_base_model(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [[server]]
        model = { name = "harbor" }
        settings = { enable_lora = true, lora_modules = ["sql=/adapters/sql"] }
        """,
    )

    identity = found.complete(request("sql", "n1")).identity

    assert (identity.lora_name, identity.lora_path, identity.model) == (
        "sql",
        "/adapters/sql",
        "harbor",
    )


def test_served_name_stands_for_the_model(tmp_path: Path) -> None:
    """Adapter and base model are of one model, whatever requests call it."""
    found = deployment(
        tmp_path,
        """
        [[server]]
        model = { name = "org/harbor" }
        [server.settings]
        served_model_name = ["chat", "chat-8b"]
        enable_lora = true
        lora_modules = ["sql=/adapters/sql"]
        """,
    )

    models = [found.complete(request(name, "n")).identity.model for name in ("chat", "sql", "x")]

    assert models == ["org/harbor", "org/harbor", "x"]


def test_served_name_tells_the_server(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [[server]]
        name = "short"
        model = { name = "m" }
        settings = { served_model_name = ["chat", "both"] }
        [[server]]
        name = "long"
        model = { name = "m" }
        settings = { served_model_name = ["chat-long", "both"] }
        """,
    )

    completed = [found.complete(request(name, "n")) for name in ("chat", "chat-long", "both")]

    assert [r.server for r in completed] == ["short", "long", UNKNOWN]
    assert [r.identity.model for r in completed] == ["m", "m", "m"]


def test_without_adapters_every_request_is_known_to_have_none(tmp_path: Path) -> None:
    found = deployment(tmp_path, "[[server]]\nsettings = { enable_lora = false }\n")

    assert found.complete(request("m", "n1")).identity.lora_name is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "hf_overrides = false\nrope_scaling = false\nrope_theta = false",
            "as in the checkpoint",
        ),
        ("hf_overrides = false", UNKNOWN),
    ],
)
def test_position_encoding_is_the_checkpoints_only_where_no_option_changes_it(
    tmp_path: Path, settings: str, expected: object
) -> None:
    found = deployment(tmp_path, f"[[server]]\n[server.settings]\n{settings}\n")

    assert found.servers[0].identity.position_encoding == expected


def test_different_rope_options_are_different_position_encodings(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [[server]]
        settings = { rope_scaling = '{"factor": 4.0, "rope_type": "yarn"}' }
        [[server]]
        settings = { rope_scaling = '{"rope_type": "yarn", "factor": 4.0}' }
        [[server]]
        settings = { hf_overrides = '{"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}' }
        """,
    )

    first, same, other = [server.identity.position_encoding for server in found.servers]

    assert first == same != other


def test_cache_takes_the_models_type_where_none_is_set(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [model]
        dtype = "bfloat16"
        [[server]]
        settings = { kv_cache_dtype = "auto" }
        [[server]]
        model = { kv_cache_dtype = "fp8" }
        [[server]]
        """,
    )

    kinds = [server.identity.kv_cache_dtype for server in found.servers]

    assert kinds == ["bfloat16", "fp8_e4m3", UNKNOWN]


def test_store_of_two_releases_has_the_weaker_key(tmp_path: Path) -> None:
    """vLLM keys the adapter's path from 0.31 on; before, its name only."""
    found = deployment(
        tmp_path,
        """
        [engine]
        name = "vllm"
        [[server]]
        name = "new"
        version = "0.33.0"
        [[server]]
        name = "old"
        version = "0.22.0"
        [[tier]]
        kind = "mooncake"
        """,
    )

    store = found.tiers[-1]

    assert (store.name, store.servers) == ("mooncake", ("new", "old"))
    assert "lora_path" not in store.tier.key_fields
    assert "lora_name" in store.tier.key_fields


def test_every_server_has_its_own_pool_and_equal_ones_are_one_tier(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [engine]
        name = "vllm"
        version = "0.33.0"
        [pool]
        capacity_tokens = 1600
        [[server]]
        name = "a"
        [[server]]
        name = "b"
        [[server]]
        name = "c"
        block_size = 32
        """,
    )

    pools = [(tier.servers, tier.block_size, tier.capacity_blocks) for tier in found.tiers]

    assert pools == [(("a", "b"), 16, 100), (("c",), 32, 50)]


def test_lmcache_stores_chunks_of_its_own_size(tmp_path: Path) -> None:
    found = deployment(tmp_path, '[engine]\nname = "vllm"\n[[tier]]\nkind = "lmcache"\n')

    assert [tier.block_size for tier in found.tiers] == [16, 256]


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = """[[server]]
name = "a"
engine = "vlm"
[[server]]
name = "a"
match = { source = "somewhere" }
[server.settings]
enable_lora = "yes"
[[tier]]
kind = "mooncacke"
servers = ["a", "z"]
[[audit.ignore]]
rule = "x"
expires = "soon"
[budgets]
min_token_hit_rate = 50
"""
    with pytest.raises(ConfigurationError) as caught:
        deployment(tmp_path, text)

    lines = {problem.split("toml:")[1].split(":")[0] for problem in caught.value.problems}
    assert lines == {"3", "5", "6", "8", "10", "11", "12", "14", "16"}


def test_a_checkpoints_own_encoding_is_not_compared_with_a_digest(tmp_path: Path) -> None:
    """One server's model folder is known; whether the other's is the same can't be said."""
    found = deployment(
        tmp_path,
        """
        [[server]]
        identity = { position_encoding = "sha256:00" }
        [[server]]
        settings = { hf_overrides = false, rope_scaling = false, rope_theta = false }
        """,
    )

    encodings = [server.identity.position_encoding for server in found.servers]

    assert encodings == ["sha256:00", UNKNOWN]


def test_options_hold_for_every_servers_own_pool(tmp_path: Path) -> None:
    path = tmp_path / "prefixaudit.toml"
    path.write_text(
        """
        [engine]
        name = "vllm"
        [[server]]
        name = "a"
        [[server]]
        name = "b"
        version = "0.22.0"
        [[tier]]
        kind = "lmcache"
        """
    )

    found = load_deployment(path, Overrides(capacity_blocks=7))

    assert [tier.capacity_blocks for tier in found.tiers] == [7, 7, None]
    with pytest.raises(UsageError, match="several servers"):
        load_deployment(path, Overrides(engine="sglang"))


def test_only_server_is_the_deployment(tmp_path: Path) -> None:
    found = deployment(
        tmp_path,
        """
        [engine]
        name = "vllm"
        version = "0.10.2"
        block_size = 16
        [[server]]
        version = "0.33.0"
        block_size = 32
        capacity_blocks = 5
        """,
    )

    assert found.engine is not None
    assert (found.engine.version, found.block_size) == ("0.33.0", 32)
    assert found.capacity == Capacity(amount=5, unit="blocks")
