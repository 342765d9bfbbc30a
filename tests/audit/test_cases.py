"""Public cases of unsafe sharing: figures, findings by cause and request, and what isn't said.

The expected figures are those of each case's expected.json, which are right by reasoning.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prefixaudit.audit.findings import findings_of
from prefixaudit.audit.rules import load_rules
from prefixaudit.audit.tiers import hash_groups
from prefixaudit.core.audit import AuditSubject, ServerFacts, TierFacts
from prefixaudit.core.identity import Identity
from prefixaudit.engines import load_profile
from tests.audit.auditing import (
    audit_of,
    case_folder,
    expected_of,
    found,
    rows_of,
    run_case,
    run_log,
)

VLLM = '[model]\nname = "harbor-8b-chat"\n[engine]\nname = "vllm"\nversion = "0.22.0"\n'


def test_adapter_under_a_reused_name_is_told_by_its_load(tmp_path: Path) -> None:
    answer = expected_of("B019")["answer"]

    report = run_case("B019", f'{VLLM}[events]\npath = "adapters.jsonl"\n', tmp_path)

    rows = rows_of(report, "pool")
    assert rows.num_cached_tokens.tolist() == answer["engine_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == answer["safe_hit_tokens"]
    assert rows.num_unsafe_tokens.tolist() == answer["unsafe_hit_tokens"]
    assert found(report) == {"adapter-revision-mismatch": (2,)}


def test_adapter_registry_alone_tells_the_loads_apart(tmp_path: Path) -> None:
    """Without the adapter's number in the log, the events say which weights a request got."""
    folder = tmp_path / "log"
    report = run_case("B019", f'{VLLM}[events]\npath = "adapters.jsonl"\n', folder)
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    for record in lines:
        record.pop("lora")
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    report = run_log(
        folder / "requests.jsonl",
        f'{VLLM}[adapters]\nlegal = {{}}\n[events]\npath = "adapters.jsonl"\n',
    )

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 160, 160, 0]
    assert found(report) == {"adapter-revision-mismatch": (2,)}


def test_shared_store_gives_out_other_adapters_blocks(tmp_path: Path) -> None:
    case = expected_of("B021")["answer"]
    deployment = (
        f"{VLLM}[adapters]\nadapter_a = {{}}\nadapter_b = {{}}\n"
        '[[server]]\nname = "n1"\nmatch = { source = "field:node" }\n'
        '[[server]]\nname = "n2"\nmatch = { source = "field:node" }\n'
        '[[tier]]\nname = "store"\nkind = "lmcache-multiprocess"\nversion = "0.5.0"\n'
        "block_size = 64\n"
    )

    report = run_case("B021", deployment, tmp_path)

    rows = rows_of(report, "store")
    assert rows.num_cached_tokens.tolist() == case["store_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == case["safe_store_hit_tokens"]
    assert np.flatnonzero(rows.num_unsafe_tokens).tolist() == case["unsafe_requests"]
    assert found(report) == {"store-serves-other-adapter": (1, 2)}
    store = audit_of(report).tiers[1]
    assert store.smallest_closing_fields == ("lora_name",)


def test_placeholders_without_identity_share_other_pictures_blocks(tmp_path: Path) -> None:
    """Request 2 is right by luck: the blocks it finds were written for its own picture."""
    answer = expected_of("B023")["answer"]

    report = run_case("B023", '[engine]\nname = "reference"\n', tmp_path)

    rows = rows_of(report, "pool")
    assert rows.num_cached_tokens.tolist() == answer["engine_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == answer["safe_hit_tokens"]
    assert np.flatnonzero(rows.num_unsafe_tokens).tolist() == answer["unsafe_requests"]
    assert found(report) == {"served-other-media": (1, 3)}
    assert audit_of(report).tiers[0].smallest_closing_fields == ("media",)


def test_weights_updated_without_a_reset_serve_old_blocks(tmp_path: Path) -> None:
    answer = expected_of("B025")["answer"]

    report = run_case("B025", f'{VLLM}[events]\npath = "events.jsonl"\n', tmp_path)

    rows = rows_of(report, "pool")
    assert rows.num_cached_tokens.tolist() == answer["engine_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == answer["safe_hit_tokens"]
    assert found(report) == {"weights-changed-under-cache": tuple(answer["unsafe_requests"])}


def test_store_without_kv_dtype_mixes_formats(tmp_path: Path) -> None:
    answer = expected_of("B027")["answer"]
    deployment = (
        '[engine]\nname = "sglang"\nversion = "0.5.9"\nblock_size = 16\n'
        '[[tier]]\nname = "store"\nkind = "mooncake"\n'
    )

    report = run_case("B027", deployment, tmp_path)

    rows = rows_of(report, "store")
    assert rows.num_cached_tokens.tolist() == answer["store_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == answer["safe_hit_tokens"]
    assert found(report) == {"store-serves-other-kv-format": tuple(answer["unsafe_requests"])}
    assert audit_of(report).tiers[1].smallest_closing_fields == ("kv_cache_dtype",)


def test_servers_find_each_others_blocks_only_within_a_group_of_equal_roots() -> None:
    case = expected_of("B028")
    instances = json.loads((case_folder("B028") / "instances.json").read_text())
    servers = tuple(
        ServerFacts(
            name=instance["instance"],
            engine=load_profile(f"vllm@{instance['vllm']}"),
            identity=Identity(),
            settings={
                "prefix_caching_hash_algo": instance["prefix_caching_hash_algo"],
                "python_hash_seed": instance["PYTHONHASHSEED"],
                "python_version": "3.12",
            },
        )
        for instance in instances
    )
    profile = load_profile("vllm-file-tier@0.33.0")
    store = TierFacts(
        name="store",
        profile=profile,
        tier=profile.tiers[0],
        block_size=16,
        servers=tuple(server.name for server in servers),
    )

    numbers = hash_groups(servers, store)[: len(servers)]

    groups: dict[int, list[str]] = {}
    for server, number in zip(servers, numbers.tolist(), strict=True):
        groups.setdefault(number, []).append(server.name)
    assert list(groups.values()) == case["answer"]["groups_with_comparable_block_hashes"]
    subject = AuditSubject(servers=servers, tiers=(store,))
    by_rule = {
        finding.rule: finding.observation
        for finding in findings_of(load_rules(), subject)
        if finding.observation.verdict == "found"
    }
    assert by_rule["hash-root-random"].facts["servers"] == ["a", "b"]
    assert by_rule["predictable-builtin-hash"].subject == "g"


def test_private_tokens_beyond_the_public_prefix_count(tmp_path: Path) -> None:
    answer = expected_of("B029")["answer"]
    policy = json.loads((case_folder("B029") / "policy.json").read_text())
    ids = policy["public_prefixes"][0]["token_ids"]

    report = run_case("B029", f"{VLLM}[[public_prefixes]]\ntoken_ids = {ids}\n", tmp_path)

    rows = rows_of(report, "pool")
    assert rows.num_cached_tokens.tolist() == answer["hit_tokens"]
    assert rows.num_unsafe_tokens.tolist() == answer["private_cross_tenant_tokens"]
    # The public part stays shared when all else is kept apart.
    assert rows.num_safe_cached_tokens.tolist() == [0, 64, 64, 192]
    assert found(report) == {"tenant-shares-private-prefix": (2,)}
    assert audit_of(report).num_cross_tenant_private_tokens == 80


def test_store_without_salt_ends_the_isolation(tmp_path: Path) -> None:
    answer = expected_of("B030")["answer"]
    deployment = f'{VLLM}[[tier]]\nname = "store"\nkind = "lmcache"\nblock_size = 64\n'

    report = run_case("B030", deployment, tmp_path)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == answer["local_hit_tokens"]
    rows = rows_of(report, "store")
    assert rows.num_cached_tokens.tolist() == answer["store_hit_tokens"]
    assert rows.num_unsafe_tokens.tolist() == answer["cross_tenant_store_hit_tokens"]
    assert found(report)["store-serves-across-salts"] == (1,)


def test_router_without_salt_misroutes_and_leaks_nothing(tmp_path: Path) -> None:
    answer = expected_of("B031")["answer"]
    deployment = (
        f'{VLLM}[[server]]\nname = "w0"\nmatch = {{ source = "field:routed_to" }}\n'
        '[[server]]\nname = "w1"\nmatch = { source = "field:routed_to" }\n'
        '[[tier]]\nname = "router"\nkind = "llm-d"\n'
    )

    report = run_case("B031", deployment, tmp_path)

    expected = answer["router_expected_hit_tokens"]
    assert rows_of(report, "router").num_cached_tokens.tolist() == expected
    assert rows_of(report, "pool").num_cached_tokens.tolist() == answer["engine_hit_tokens"]
    findings = found(report)
    assert findings["router-expects-foreign-blocks"] == tuple(answer["misrouted_requests"])
    assert not {"tenant-shares-private-prefix", "store-serves-across-salts"} & findings.keys()
    assert audit_of(report).num_cross_tenant_private_tokens == 0


def test_forged_and_weak_salts_are_told_apart(tmp_path: Path) -> None:
    case = expected_of("B033")

    report = run_case("B033", VLLM, tmp_path)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == case["answer"]["hit_tokens"]
    assert found(report) == {"salt-of-several-tenants": (1,), "salt-guessable": (0, 3)}


def test_salt_that_equals_an_adapters_name_shares_one_block(tmp_path: Path) -> None:
    answer = expected_of("B035")["answer"]

    report = run_case("B035", VLLM, tmp_path)

    rows = rows_of(report, "pool")
    assert rows.num_cached_tokens.tolist() == answer["engine_hit_tokens"]
    assert rows.num_safe_cached_tokens.tolist() == answer["safe_hit_tokens"]
    assert rows.num_unsafe_tokens.tolist() == [0, 16, 0]
    assert found(report)["key-spelled-by-another-field"] == (1,)


def test_keys_with_tags_share_nothing_with_such_a_salt(tmp_path: Path) -> None:
    """From vLLM 0.31 on each part of the key carries its kind."""
    report = run_case("B035", VLLM.replace("0.22.0", "0.31.0"), tmp_path)

    assert rows_of(report, "pool").num_cached_tokens.tolist() == [0, 0, 0]
    assert "key-spelled-by-another-field" not in found(report)
