"""A tier's key by engine and version, and the complete one, as namespaces."""

from __future__ import annotations

import numpy as np
import pytest

from prefixaudit.audit.identities import IdentityTable
from prefixaudit.audit.keys import content_of, isolation_of, written_key
from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.engines import load_profile


def identity(**values: Known[str]) -> Identity:
    """Return an identity that is known to have nothing but `values`."""
    return Identity(**{**dict.fromkeys(IDENTITY_FIELDS), **values})


def shares(spec: str, left: Identity, right: Identity, *, tier: str = "pool") -> tuple[bool, bool]:
    """Say whether two identities share the first block, and the others, in an engine's tier."""
    facts = load_profile(spec).tier(tier)
    assert facts is not None
    key = written_key(facts, (left, right))
    return bool(key.first[0] == key.first[1]), bool(key.rest[0] == key.rest[1])


@pytest.mark.parametrize(
    ("version", "first_block"),
    [("0.11.0", False), ("0.11.1", True), ("0.30.0", True), ("0.31.0", False)],
)
def test_salt_spells_an_adapter_in_the_first_block_of_these_releases(
    version: str, first_block: bool
) -> None:
    """0.11.0 keys the adapter's number, from 0.31 on each part carries a tag (vllm 44701)."""
    adapter, salt = identity(lora_name="legal"), identity(cache_salt="legal")

    assert shares(f"vllm@{version}", adapter, salt) == (first_block, False)


@pytest.mark.parametrize(("version", "shared"), [("0.5.17", True), ("0.5.18", False)])
def test_sglang_joined_salt_and_extra_key_until(version: str, shared: bool) -> None:
    left = identity(cache_salt="a", extra_key="bc")
    right = identity(cache_salt="ab", extra_key="c")

    assert shares(f"sglang@{version}", left, right) == (shared, shared)


def test_salt_separates_all_blocks_through_the_first_one() -> None:
    left, right = identity(cache_salt="x"), identity(cache_salt="y")

    assert shares("vllm@0.33.0", left, right) == (False, False)


def test_salt_before_release_09_separates_nothing() -> None:
    left, right = identity(cache_salt="x"), identity(cache_salt="y")

    assert shares("vllm@0.8.5", left, right) == (True, True)


def test_empty_salt_is_no_salt() -> None:
    assert shares("vllm@0.33.0", identity(cache_salt=""), identity()) == (True, True)
    assert isolation_of(identity(cache_salt="")) == isolation_of(identity())


def test_unknown_salt_takes_nobodys_place() -> None:
    left, right = identity(lora_name="legal"), identity(cache_salt=UNKNOWN)

    assert shares("vllm@0.30.0", left, right) == (False, False)


def test_content_takes_the_path_only_where_no_revision_is_known() -> None:
    def adapter(revision: Known[str], path: str) -> Identity:
        return identity(lora_name="sql", lora_revision=revision, lora_path=path)

    assert content_of(adapter("1", "/a")) == content_of(adapter("1", "/b"))
    assert content_of(adapter(UNKNOWN, "/a")) != content_of(adapter(UNKNOWN, "/b"))


def test_trust_domain_stands_for_its_tenants() -> None:
    acme = identity(tenant="acme", trust_domain="group")
    bob = identity(tenant="bob", trust_domain="group")

    assert isolation_of(acme) == isolation_of(bob)
    assert isolation_of(identity(tenant="acme")) != isolation_of(identity(tenant="bob"))


def test_table_numbers_unknown_absent_and_values_apart() -> None:
    rows = [identity(cache_salt=v) for v in (UNKNOWN, None, "", "x", "y", "x")]
    table = IdentityTable(tuple(rows))

    assert table.codes("cache_salt").tolist() == [-1, 0, 0, 1, 2, 1]


def test_table_numbers_equal_forms_equally() -> None:
    rows = [identity(tenant=t, user=u) for t, u in (("a", "x"), ("b", "x"), ("a", "y"))]
    table = IdentityTable(tuple(rows))

    numbers = table.number(("tenant", "user"), lambda i: i.user)

    assert numbers[0] == numbers[1] != numbers[2]
    assert sorted(np.unique(numbers).tolist()) == [0, 1]
