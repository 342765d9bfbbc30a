"""Whom a request belongs to, and that an API key never leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prefixaudit.core.identity import Identity
from prefixaudit.core.request import LengthOnly, Request, Source
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment, TenantRule, key_digest


def _request(
    record: Any = None, headers: Mapping[str, str] | None = None, **identity: Any
) -> Request:
    return Request(
        request_id="r",
        source=Source("log", 1),
        prompt=LengthOnly(num_prompt_tokens=1),
        identity=Identity(**identity),
        headers=headers or {},
        record=record,
    )


def _tenant(request: Request, *sources: str) -> object:
    rule = TenantRule(sources=sources)
    return Deployment(tenant_rule=rule).complete(request).identity.tenant


def test_header_of_any_case() -> None:
    assert _tenant(_request(headers={"x-tenant-id": "acme"}), "header:X-Tenant-Id") == "acme"


@pytest.mark.parametrize(
    ("record", "tenant"),
    [
        ({"metadata": {"teams": [{"name": "acme"}]}}, "acme"),
        ({"metadata": {"teams": [{"name": 17}]}}, "17"),
        ({"metadata": {"teams": [{"name": None}]}}, None),
        ({"metadata": {"teams": [{"name": ""}]}}, UNKNOWN),
        ({"metadata": {"teams": [{"name": ["x"]}]}}, UNKNOWN),
        ({"metadata": {"teams": []}}, UNKNOWN),
        ({"metadata": "text"}, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_field_of_the_record(record: object, tenant: object) -> None:
    assert _tenant(_request(record), "field:metadata.teams.0.name") == tenant


def test_first_source_that_the_request_has_wins() -> None:
    request = _request({"team": "blue"}, {"x-team": "red"})

    assert _tenant(request, "header:x-none", "field:team", "header:x-team") == "blue"


def test_log_names_the_tenant_where_the_rule_finds_none() -> None:
    assert _tenant(_request(tenant="acme"), "header:x-tenant") == "acme"
    assert _tenant(_request(tenant="acme"), "log") == "acme"


def test_api_key_becomes_a_digest() -> None:
    """SHA-256 of `sk-secret` begins with these 64 bits (`printf sk-secret | sha256sum`)."""
    request = _request(headers={"authorization": "Bearer sk-secret"})

    tenant = _tenant(request, "api-key")

    assert tenant == key_digest("sk-secret") == "key-746b4ad1ca9129e1"
    assert _tenant(_request(headers={"x-api-key": "sk-secret"}), "api-key") == tenant


def test_record_is_dropped_once_the_identity_is_filled() -> None:
    assert Deployment().complete(_request({"a": 1})).record is None


def test_defaults_fill_only_what_is_unknown() -> None:
    deployment = Deployment(identity=Identity(lora_name=None, dtype="bfloat16"))

    filled = deployment.complete(_request(lora_name="sql")).identity

    assert filled.lora_name == "sql"
    assert filled.dtype == "bfloat16"
    assert filled.cache_salt is UNKNOWN


def test_tenant_of_no_trust_domain_is_a_domain_of_its_own() -> None:
    deployment = Deployment(trust_domains={"acme": "group", "bob": "group"})

    domains = [
        deployment.complete(_request(tenant=tenant)).identity.trust_domain
        for tenant in ("acme", "bob", "eve")
    ]

    assert domains == ["group", "group", "eve"]
    assert deployment.complete(_request()).identity.trust_domain is UNKNOWN


def test_nothing_to_complete_costs_no_copy() -> None:
    request = _request()

    assert Deployment().complete(request) is request
