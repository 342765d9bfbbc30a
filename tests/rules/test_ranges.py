"""Which releases a rule is about, held against the fault table for every release that was read.

The ranges below are written down from the advisories and issues (first affected release, first one
that isn't any more), not taken from the rules. Everything else that a rule asks for is on.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from typing import Any, Final

import pytest
from packaging.version import Version

from prefixaudit.audit.findings import findings_of
from prefixaudit.audit.rules import load_rules
from prefixaudit.core.audit import AuditSubject
from tests.rules.subjects import one_server

_RULES = {rule.name: rule for rule in load_rules()}
_EVERYTHING: Final[dict[str, Any]] = {
    "allow_runtime_lora_updating": True,
    "async_scheduling": True,
    "enable_lora": True,
    "enable_mm_embeds": True,
    "enable_prefix_caching": True,
    "enable_prompt_embeds": True,
    "enable_tower_connector_lora": True,
    "enable_weight_updates": True,
    "has_tenants": True,
    "is_recurrent": True,
    "kv_connector": "MooncakeConnector",
    "pipeline_parallel_size": 2,
    "python_hash_seed": "0",
    "python_version": "3.12.3",
    "serves_media": True,
    "speculative_method": "mtp",
}
_LMCACHE = [{"name": "store", "kind": "lmcache-multiprocess", "version": "0.5.6"}]
_MOONCAKE = [{"name": "store", "kind": "mooncake"}]
_LLM_D = [{"name": "router", "kind": "llm-d"}]
_HICACHE = [{"name": "store", "kind": "sglang-hicache"}]

# rule, engine, first affected (None: the oldest), first not affected (None: still open), tiers
_RANGES: Final[list[tuple[str, str, str | None, str | None, list[dict[str, str]]]]] = [
    ("predictable-builtin-hash", "vllm", None, "0.7.2", []),
    ("no-salt-to-separate-tenants", "vllm", None, "0.9.0", []),
    ("image-shape-not-hashed", "vllm", "0.7.0", "0.9.0", []),
    ("vllm-takes-media-hashes", "vllm", None, "0.30.0", []),
    ("salt-that-store-refuses", "vllm", None, "0.30.0", _LMCACHE),
    ("sglang-takes-media-hashes", "sglang", "0.5.13", "0.5.22", []),
    ("transfer-id-shared-by-prompts", "vllm", None, "0.30.0", []),
    ("async-scheduling-with-pipeline", "vllm", "0.16.0", "0.21.0", []),
    ("salt-can-spell-adapter", "vllm", "0.11.1", "0.31.0", []),
    ("salt-can-spell-media", "vllm", "0.9.0", "0.19.0", []),
    ("adapter-replaced-under-name", "vllm", "0.11.1", "0.31.0", []),
    ("adapter-files-replaced-in-place", "vllm", "0.31.0", None, []),
    ("adapter-numbered-by-load-order", "vllm", "0.7.3", "0.11.1", _MOONCAKE),
    ("adapter-number-reused", "vllm", "0.7.3", "0.11.1", []),
    ("tower-adapter-by-name", "vllm", None, None, []),
    ("media-identity-from-client", "vllm", None, None, []),
    # 0.7.0 compares media without chaining them; ranges that begin at 0.7 count from 0.7.1 here.
    ("media-place-not-in-key", "vllm", "0.7.1", "0.19.0", []),
    ("key-without-prompt-embeds", "vllm", None, "0.11.1", []),
    ("embedding-mask-not-in-key", "vllm", "0.11.1", None, []),
    ("store-key-without-prompt-embeds", "vllm", None, None, _LMCACHE),
    ("hash-seed-inverted", "vllm", "0.8.3", "0.8.5", _MOONCAKE),
    ("drafting-on-recurrent-model", "vllm", "0.28.0", None, []),
    ("recurrent-model-hits-by-large-units", "vllm", "0.19.0", "0.29.0", []),
    ("router-blind-to-events", "vllm", "0.24.0", None, _LLM_D),
    ("weights-replaced-without-reset", "vllm", None, None, []),
    ("salt-joined-to-extra-key", "sglang", None, "0.5.18", []),
    ("extra-key-can-spell-adapter", "sglang", None, None, []),
    ("media-value-of-thirty-bits", "sglang", None, "0.5.23", []),
    ("media-value-equals-token-ids", "sglang", None, "0.5.0", []),
    ("embedding-shape-not-hashed", "sglang", "0.5.0", None, []),
    ("store-key-without-salt", "sglang", None, "0.5.20", _HICACHE),
    ("store-key-without-adapter", "sglang", None, "0.5.20", _HICACHE),
]
# Faults of a store's own releases: rule, kind, first affected, first not affected, engine.
_STORE_RANGES: Final[list[tuple[str, str, str | None, str | None, str]]] = [
    ("media-cut-to-few-bits", "lmcache", None, "0.5.5", "vllm"),
    ("media-cut-to-few-bits", "lmcache-multiprocess", None, "0.5.5", "vllm"),
    ("store-key-without-salt", "lmcache", None, None, "vllm"),
    ("store-key-without-salt", "lmcache-multiprocess", None, "0.5.0", "vllm"),
    ("lmcache-loses-sglang-salt", "lmcache-multiprocess", None, "0.5.6", "sglang"),
    ("store-key-without-adapter", "lmcache", None, None, "vllm"),
    ("store-key-without-adapter", "lmcache-multiprocess", None, None, "vllm"),
]


def _releases(engine: str) -> list[str]:
    file = importlib.resources.files("prefixaudit.engines") / f"{engine}.toml"
    releases: list[str] = tomllib.loads(file.read_text(encoding="utf-8"))["releases_read"]
    return releases


def _is_found(rule: str, subject: AuditSubject) -> bool:
    verdicts = {finding.observation.verdict for finding in findings_of([_RULES[rule]], subject)}
    assert verdicts <= {"found"}
    return bool(verdicts)


def _in_range(release: str, first: str | None, after: str | None) -> bool:
    version = Version(release)
    return (first is None or version >= Version(first)) and (
        after is None or version < Version(after)
    )


@pytest.mark.parametrize(
    ("rule", "engine", "first", "after", "tiers"), _RANGES, ids=[row[0] for row in _RANGES]
)
def test_rule_finds_exactly_the_affected_releases(
    rule: str, engine: str, first: str | None, after: str | None, tiers: list[dict[str, str]]
) -> None:
    found = {
        release: _is_found(rule, one_server(engine, release, _EVERYTHING, tiers))
        for release in _releases(engine)
    }

    assert found == {release: _in_range(release, first, after) for release in found}


@pytest.mark.parametrize(
    ("rule", "kind", "first", "after", "engine"),
    _STORE_RANGES,
    ids=[f"{row[0]} of {row[1]}" for row in _STORE_RANGES],
)
def test_rule_finds_exactly_the_affected_releases_of_a_store(
    rule: str, kind: str, first: str | None, after: str | None, engine: str
) -> None:
    found = {
        release: _is_found(
            rule,
            one_server(
                engine, None, _EVERYTHING, [{"name": "s", "kind": kind, "version": release}]
            ),
        )
        for release in _releases("lmcache")
    }

    assert found == {release: _in_range(release, first, after) for release in found}


@pytest.mark.parametrize(
    "name", [row[0] for row in _RANGES if _RULES[row[0]].params.get("engines")]
)
def test_rule_of_one_engine_is_silent_on_another(name: str) -> None:
    rule = _RULES[name]

    assert "trtllm" not in rule.params["engines"]
    assert findings_of([rule], one_server("trtllm", None, _EVERYTHING)) == ()


def test_pre_release_counts_as_its_release() -> None:
    settings = {"serves_media": True}

    assert not _is_found("vllm-takes-media-hashes", one_server("vllm", "0.30.0rc1", settings))
    assert _is_found("vllm-takes-media-hashes", one_server("vllm", "0.29.0.post1", settings))


def test_version_that_is_not_known_is_inconclusive_and_named() -> None:
    rule = _RULES["vllm-takes-media-hashes"]

    (finding,) = findings_of([rule], one_server("vllm", None, {"serves_media": True}))

    assert finding.observation.verdict == "inconclusive"
    assert finding.observation.facts["unknown_fields"] == ["version of vllm"]
