"""Public prefixes: declared in four ways, proposed from a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixaudit.audit.public import propose_prefixes, public_nodes
from tests.audit.auditing import audit_of, found, rows_of, run_log, write_log
from tests.audit.logs import SmallRequest, audit_log
from tests.audit.test_keys import identity

VLLM = '[model]\nname = "m"\n[engine]\nname = "vllm"\nversion = "0.33.0"\n'
MODEL = Path(__file__).parents[2] / "samples" / "support-chat" / "model"


def _log(folder: Path, tenants: int = 3) -> Path:
    """Tenants whose prompts begin with the same 64 tokens, and go on with 40 of their own."""
    return write_log(
        folder / "requests.jsonl",
        (
            {
                "request_id": f"{tenant}-{turn}",
                "arrival_s": 1_772_438_400 + 10 * turn + tenant,
                "tenant": f"tenant-{tenant}",
                "cache_salt": None,
                "lora_name": None,
                "prompt_token_ids": [
                    *range(64),
                    *range(1000 * tenant + 1000, 1000 * tenant + 1040),
                ],
            }
            for turn in range(2)
            for tenant in range(tenants)
        ),
    )


def test_undeclared_beginning_is_found_and_proposed(tmp_path: Path) -> None:
    report = run_log(_log(tmp_path), VLLM)

    (proposal,) = audit_of(report).proposed_public_prefixes
    assert (proposal.num_tokens, proposal.num_tenants, proposal.num_requests) == (64, 3, 6)
    assert "tenant-shares-private-prefix" in found(report)


def test_accepted_proposal_silences_the_finding(tmp_path: Path) -> None:
    log = _log(tmp_path)
    (proposal,) = audit_of(run_log(log, VLLM)).proposed_public_prefixes

    report = run_log(log, f'{VLLM}[[public_prefixes]]\nhash = "{proposal.hash}"\n')

    assert found(report) == {}
    assert audit_of(report).proposed_public_prefixes == ()
    assert audit_of(report).num_public_tokens == 6 * 64


def test_two_tenants_are_too_few_for_a_proposal(tmp_path: Path) -> None:
    report = run_log(_log(tmp_path, tenants=2), VLLM)

    assert audit_of(report).proposed_public_prefixes == ()


def test_prefix_that_ends_inside_a_block_leaves_the_rest_of_it_private(tmp_path: Path) -> None:
    """52 of the 64 shared tokens are public: 12 tokens of each later tenant's hit are private."""
    ids = list(range(52))

    report = run_log(_log(tmp_path), f"{VLLM}[[public_prefixes]]\ntoken_ids = {ids}\n")

    assert rows_of(report, "pool").num_unsafe_tokens.tolist()[:3] == [0, 12, 12]


def test_message_and_text_are_rendered_and_encoded(tmp_path: Path) -> None:
    """A system prompt as a message: the chat template's head and the text are public."""
    system = "You are the assistant of a shop. Answer in one sentence, name the order's number."
    records: list[dict[str, Any]] = [
        {
            "request_id": f"r{number}",
            "timestamp": f"2026-03-02T08:0{number}:00Z",
            "tenant": tenant,
            "body": {
                "model": "m",
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": f"{tenant} asks: where is my order?"},
                ],
            },
        }
        for number, tenant in enumerate(["acme", "bob"])
    ]
    log = write_log(tmp_path / "requests.jsonl", records)
    deployment = f"{VLLM}".replace('name = "m"', f'name = "m"\npath = "{MODEL}"')

    loud = run_log(log, deployment)
    quiet = run_log(
        log,
        f'{deployment}[[public_prefixes]]\nmessage = {{ role = "system", content = "{system}" }}\n',
    )

    assert found(loud) == {"tenant-shares-private-prefix": (1,)}
    assert found(quiet) == {}


def test_nodes_are_public_up_to_the_last_whole_block() -> None:
    acme = identity(tenant="acme")
    log = audit_log(
        [
            SmallRequest(tokens=tuple(range(20)), identity=acme, public_tokens=10),
            SmallRequest(tokens=(*range(8), *range(100, 120)), identity=acme, public_tokens=8),
        ]
    )

    cut, is_public = public_nodes(log.traces[0], log.public_tokens)

    tree = cut.tree
    ends = (tree.depth_blocks + tree.num_blocks).tolist()
    assert {end for end, public in zip(ends, is_public.tolist(), strict=True) if public} == {2}
    assert sum(tree.num_blocks.tolist()) == 10  # 5 + 7 blocks, of which 2 are shared


def test_proposals_need_two_tenants_or_more() -> None:
    log = audit_log([SmallRequest(tokens=(1,), identity=identity(tenant="acme"))])

    with pytest.raises(ValueError, match="expected 2 or more"):
        propose_prefixes(log.traces[0], min_tenants=1, public_tokens=np.zeros(1, dtype=np.int64))
