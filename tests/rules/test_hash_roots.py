"""Which servers can have equal block hashes at all."""

from __future__ import annotations

from typing import Any

from prefixaudit.audit.hash_roots import root_of
from prefixaudit.core.unknown import UNKNOWN, Unknown
from tests.rules.subjects import subject_of


def _roots(servers: list[dict[str, Any]], kind: str = "mooncake") -> dict[str, Any]:
    tables = {"server": servers, "tier": [{"name": "store", "kind": kind}]}
    subject = subject_of(tables)
    store = next(tier for tier in subject.tiers if tier.name == "store")
    return {server.name: root_of(server, store, subject) for server in subject.servers}


def _server(name: str, version: str, algorithm: str, seed: str | bool) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "vllm",
        "version": version,
        "settings": {
            "prefix_caching_hash_algo": algorithm,
            "python_hash_seed": seed,
            "python_version": "3.12.3",
        },
    }


def _groups(roots: dict[str, Any]) -> set[frozenset[str]]:
    return {
        frozenset(name for name in roots if roots[name] == root) for root in set(roots.values())
    }


def test_servers_are_grouped_by_seed_algorithm_and_release() -> None:
    """The instances of a public report; the groups follow from how each release begins a chain."""
    roots = _roots(
        [
            _server("a", "0.27.1", "sha256", False),
            _server("b", "0.27.1", "sha256", False),
            _server("c", "0.27.1", "sha256", "0"),
            _server("d", "0.27.1", "sha256", "0"),
            _server("e", "0.33.0", "sha256", False),
            _server("f", "0.33.0", "sha256", False),
            _server("g", "0.7.1", "builtin", "0"),
        ]
    )

    assert _groups(roots) == {
        frozenset(names) for names in ({"a"}, {"b"}, {"c", "d"}, {"e", "f"}, {"g"})
    }


def test_xxhash_without_a_seed_has_a_random_root_in_every_release() -> None:
    roots = _roots([_server("a", "0.33.0", "xxhash", False), _server("b", "0.33.0", "xxhash", "0")])

    assert roots["a"] == ("random", "a")
    assert roots["b"] != roots["a"]


def test_seed_of_the_two_inverted_releases_makes_the_root_random() -> None:
    roots = _roots([_server("a", "0.8.4", "sha256", "0"), _server("b", "0.8.4", "sha256", False)])

    assert roots["a"] == ("random", "a")
    assert isinstance(roots["b"], tuple)
    assert roots["b"][0] == "fixed"


def test_root_is_unknown_for_want_of_a_seed() -> None:
    server = _server("a", "0.27.1", "sha256", "0")
    del server["settings"]["python_hash_seed"]

    root: Unknown | tuple[str, ...] = _roots([server])["a"]

    assert root is UNKNOWN


def test_hashes_that_know_no_seed_have_one_root() -> None:
    servers = [
        {"name": "a", "engine": "sglang", "version": "0.5.20"},
        {"name": "b", "engine": "sglang", "version": "0.5.22"},
    ]

    roots = _roots(servers, "sglang-hicache")

    assert roots["a"] == roots["b"]
