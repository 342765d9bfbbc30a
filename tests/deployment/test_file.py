"""prefixaudit.toml: what it may say, and all its problems at once with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import (
    Capacity,
    Deployment,
    Overrides,
    find_deployment,
    load_deployment,
)
from prefixaudit.errors import ConfigurationError, UsageError


def _load(tmp_path: Path, text: str) -> Deployment:
    file = tmp_path / "prefixaudit.toml"
    file.write_text(text)
    return load_deployment(file)


def test_everything_that_a_file_can_say(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("x")
    deployment = _load(
        tmp_path,
        """
        [model]
        name = "harbor"
        revision = "5c1f"
        dtype = "bfloat16"
        quantization = false
        kv_cache_dtype = "fp8_e4m3"
        chat_template = "chat.jinja"

        [engine]
        name = "vllm"
        version = "0.33.0"
        block_size = 32
        cache_generated = false

        [rendering]
        time_zone = "Europe/Zurich"
        null_content = "drop"

        [pool]
        capacity_tokens = 3205

        [identity]
        lora_name = false
        user = "batch"

        [tenant]
        source = ["header:X-Tenant-Id", "api-key"]

        [trust_domains]
        group = ["acme", "bob"]
        """,
    )

    identity = deployment.identity
    assert (identity.model, identity.model_revision, identity.dtype) == (
        "harbor", "5c1f", "bfloat16",
    )  # fmt: skip
    assert identity.quantization is None
    assert identity.lora_name is None
    assert identity.lora_revision is UNKNOWN
    assert identity.user == "batch"
    assert deployment.chat_template == tmp_path / "chat.jinja"
    assert deployment.engine is not None
    assert deployment.engine.name == "vllm"
    assert deployment.block_size == 32
    assert deployment.cache_generated is False
    assert deployment.rendering.time_zone == "Europe/Zurich"
    assert deployment.rendering.server_rules == {"null_content": "drop"}
    assert deployment.capacity == Capacity(amount=3205, unit="tokens")
    assert deployment.capacity.in_blocks(32, None) == 100
    assert deployment.tenant_rule is not None
    assert deployment.tenant_rule.sources == ("header:X-Tenant-Id", "api-key")
    assert deployment.trust_domains == {"acme": "group", "bob": "group"}


def test_empty_file_knows_nothing(tmp_path: Path) -> None:
    deployment = _load(tmp_path, "")

    assert all(
        getattr(deployment.identity, name) is UNKNOWN for name in ("model", "dtype", "tenant")
    )
    assert deployment.capacity is None
    assert deployment.engine is None


def test_all_problems_of_a_file_at_once_with_their_lines(tmp_path: Path) -> None:
    text = "\n".join(
        (
            "[model]",
            'path = "nowhere"',
            'dtype = "auto"',
            "[engine]",
            'name = "vlm"',
            "blocksize = 16",
            "[pool]",
            "capacity_blocks = -1",
            "capacity_gib = 2",
            "[identity]",
            "lora_name = 3",
            "[tenant]",
            'source = "headr:x"',
            "[trust_domains]",
            'a = ["x"]',
            'b = ["x"]',
            "[rendering]",
            'time_zone = "Mars/North"',
        )
    )

    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, text)

    file = tmp_path / "prefixaudit.toml"
    problems = "\n".join(caught.value.problems)
    for line, words in (
        (2, "no such model folder"),
        (3, "is 'auto'"),
        (5, "unknown engine 'vlm'"),
        (5, "did you mean 'vllm'?"),
        (6, "did you mean 'block_size'?"),
        (8, "expected 0 or more"),
        (9, "give one"),
        (11, "expected text, or false"),
        (13, "is no tenant source"),
        (16, "also in 'a'"),
        (18, "unknown time zone"),
    ):
        assert any(
            problem.startswith(f"{file}:{line}: ") and words in problem
            for problem in problems.splitlines()
        ), (line, words, problems)


def test_broken_toml_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        _load(tmp_path, "[model\n")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()

    assert _load(tmp_path, '[model]\npath = "model"\n').model_dir == tmp_path / "model"


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "prefixaudit.toml"
    file.write_text("[engine]\nblock_size = 32\n[pool]\ncapacity_blocks = 5\n")

    deployment = load_deployment(file, Overrides(block_size=16, capacity_gib=1.5, engine="sglang"))

    assert deployment.block_size == 16
    assert deployment.capacity == Capacity(amount=1.5, unit="gib")
    assert deployment.engine is not None
    assert deployment.engine.name == "sglang"


def test_two_capacities_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="give one"):
        load_deployment(None, Overrides(capacity_blocks=1, capacity_gib=1.0))


def test_file_beside_the_log_is_found(tmp_path: Path) -> None:
    file = tmp_path / "prefixaudit.toml"
    file.touch()

    assert find_deployment([str(tmp_path / "log.jsonl")]) == file
    assert find_deployment([str(tmp_path)]) == file
    assert find_deployment(["-"]) is None


def test_gib_need_the_bytes_of_a_token() -> None:
    capacity = Capacity(amount=1.0, unit="gib")

    assert capacity.in_blocks(16, None) is None
    # 2**30 / (16 tokens of 131,072 bytes)
    assert capacity.in_blocks(16, 16 * 131_072) == 512


def test_model_that_can_not_be_described_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')

    deployment = load_deployment(None, Overrides(model_dir=tmp_path))

    assert deployment.model is None
    assert deployment.model_problem is not None
    assert "abacus" in deployment.model_problem


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'"x"'])
def test_broken_config_is_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"config\.json"):
        load_deployment(None, Overrides(model_dir=tmp_path))


def test_config_decides_position_encoding_and_attention(tmp_path: Path) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 320,'
        ' "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,'
        ' "max_position_embeddings": 2048, "rope_theta": %s}'
    )
    digests = []
    for theta in ("10000.0", "10000", "500000.0"):
        (tmp_path / "config.json").write_text(config % theta)
        digests.append(load_deployment(None, Overrides(model_dir=tmp_path)).identity)

    assert digests[0].attention == "full"
    assert digests[0].position_encoding == digests[1].position_encoding
    assert digests[0].position_encoding != digests[2].position_encoding
