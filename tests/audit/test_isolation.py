"""What isolation would cost: hits by policy, worked out by hand."""

from __future__ import annotations

from pathlib import Path

from tests.audit.auditing import audit_of, run_log, write_log

VLLM = '[model]\nname = "m"\n[engine]\nname = "vllm"\nversion = "0.33.0"\n'
PUBLIC = f"[[public_prefixes]]\ntoken_ids = {list(range(32))}\n"
DOMAINS = '[trust_domains]\ngroup = ["acme", "bob"]\n'


def _log(folder: Path) -> Path:
    """Four requests for the same 80 tokens (five blocks, all of them hit), by tenant and user."""
    who = [("acme", "ann"), ("acme", "abe"), ("bob", "bea"), ("cora", "cia")]
    return write_log(
        folder / "requests.jsonl",
        (
            {
                "request_id": f"r{number}",
                "arrival_s": 1_772_438_400 + number,
                "tenant": tenant,
                "user": user,
                "cache_salt": f"salt of {tenant}",
                "lora_name": None,
                "prompt_token_ids": [*range(80), number],
            }
            for number, (tenant, user) in enumerate(who)
        ),
    )


def _cached(folder: Path, deployment: str) -> dict[str, tuple[int, int]]:
    rows = audit_of(run_log(_log(folder), deployment)).isolation
    return {row.policy: (row.num_groups, row.num_cached_tokens) for row in rows}


def test_each_policy_hits_within_its_groups_only(tmp_path: Path) -> None:
    """Shared: three of four requests hit 80 tokens. By tenant one does; by user none."""
    assert _cached(tmp_path, VLLM) == {"shared": (1, 240), "tenant": (3, 80), "user": (4, 0)}


def test_public_prefix_is_shared_and_the_rest_kept_within_tenants(tmp_path: Path) -> None:
    """32 public tokens are hit by all three later requests, the other 48 by acme's second."""
    assert _cached(tmp_path, VLLM + PUBLIC)["public-prefix-shared"] == (3, 3 * 32 + 48)


def test_trust_domain_shares_between_its_tenants(tmp_path: Path) -> None:
    """acme and bob are one domain: two later requests of theirs hit; cora is alone."""
    assert _cached(tmp_path, VLLM + DOMAINS)["trust-domain"] == (2, 160)


def test_log_without_tenants_has_no_table(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "requests.jsonl",
        ({"request_id": f"r{n}", "prompt_token_ids": list(range(40))} for n in range(2)),
    )

    assert audit_of(run_log(log, VLLM)).isolation == ()


def test_policies_are_simulated_in_the_pools_size(tmp_path: Path) -> None:
    """A pool of 4 blocks can't keep a prompt of 5 blocks and its tail: vLLM has no room for it."""
    rows = audit_of(run_log(_log(tmp_path), f"{VLLM}[pool]\ncapacity_blocks = 6\n")).isolation

    assert [row.num_cached_tokens for row in rows] == [240, 80, 0]
