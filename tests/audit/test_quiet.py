"""Quiet where all is well, and nothing private in what is printed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixaudit.core.finding import Severity
from prefixaudit.core.report import RenderOptions
from prefixaudit.render import RENDERERS
from tests.audit.auditing import audit_of, run_log, write_log

HEALTHY = """
[model]
name = "harbor-8b-chat"
revision = "5c1f"
dtype = "bfloat16"
quantization = false
kv_cache_dtype = "bfloat16"
[engine]
name = "vllm"
version = "0.33.0"
[engine.settings]
enable_lora = false
enable_prompt_embeds = false
"""


def _healthy_log(folder: Path) -> Path:
    """Five tenants, a system prompt and a random salt each; conversations that grow."""
    random = np.random.default_rng(3)
    records: list[dict[str, Any]] = []
    history = {
        (tenant, chat): random.integers(1000, 60_000, 160).tolist()[:96]
        for tenant in range(5)
        for chat in range(2)
    }
    system = {tenant: random.integers(1000, 60_000, 96).tolist() for tenant in range(5)}
    salts = {
        tenant: hashlib.sha256(f"a secret of the gateway, {tenant}".encode()).hexdigest()
        for tenant in range(5)
    }
    for turn in range(8):
        for tenant, chat in history:
            asked = random.integers(1000, 60_000, 24).tolist()
            history[tenant, chat] = [*history[tenant, chat], *asked]
            records.append(
                {
                    "request_id": f"{tenant}-{chat}-{turn}",
                    "arrival_s": 1_772_438_400 + len(records),
                    "tenant": f"tenant-{tenant}",
                    "cache_salt": salts[tenant],
                    "lora_name": None,
                    "prompt_token_ids": [*system[tenant], *history[tenant, chat]],
                }
            )
    return write_log(folder / "requests.jsonl", records)


def test_healthy_log_of_five_tenants_gives_no_findings(tmp_path: Path) -> None:
    report = run_log(_healthy_log(tmp_path), HEALTHY)

    # Each turn adds 24 tokens to more than 192: three quarters of all tokens and more are hit.
    assert report.this_pool.token_hit_rate is not None
    assert report.this_pool.token_hit_rate > 0.75
    loud = [f for f in audit_of(report).findings if f.severity > Severity.INFORMATIONAL]
    assert loud == []
    assert audit_of(report).safe_this_pool_tokens == report.this_pool.num_cached_tokens


def test_log_of_one_tenant_without_salts_gives_no_findings(tmp_path: Path) -> None:
    log = _healthy_log(tmp_path)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line["tenant"], line["cache_salt"] = "acme", None
    write_log(log, lines)

    report = run_log(log, HEALTHY)

    loud = [f for f in audit_of(report).findings if f.severity > Severity.INFORMATIONAL]
    assert loud == []


def test_log_without_tenants_is_inconclusive_and_no_finding(tmp_path: Path) -> None:
    log = _healthy_log(tmp_path)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        del line["tenant"], line["cache_salt"]
    write_log(log, lines)

    report = run_log(log, HEALTHY)

    by_rule = {f.rule: f.observation.verdict for f in audit_of(report).findings}
    assert by_rule["tenant-shares-private-prefix"] == "inconclusive"
    assert all(f.severity == Severity.INFORMATIONAL for f in audit_of(report).findings)


CANARY = "kanarienvogel"


@pytest.mark.parametrize("output_format", RENDERERS.names)
def test_no_salt_key_or_prompt_text_in_any_output(tmp_path: Path, output_format: str) -> None:
    """Salts of every kind that a rule looks at: shared, weak, refused, and one like an adapter."""
    records = [
        {
            "request_id": f"r{index}",
            "timestamp": f"2026-03-02T08:0{index}:00Z",
            "tenant": tenant,
            "headers": {"authorization": f"Bearer sk-{CANARY}"},
            "body": {
                "model": "harbor",
                "prompt": list(range(100)),
                "cache_salt": salt,
                "extra_key": f"key-{CANARY}",
                "metadata": {"note": f"note {CANARY}"},
            },
        }
        for index, (tenant, salt) in enumerate(
            [
                ("acme", f"{CANARY}"),
                ("bob", f"{CANARY}"),
                ("bob", f"{CANARY}/@"),
                ("acme", f"acme-{CANARY}"),
                ("cora", None),
            ]
        )
    ]
    log = write_log(tmp_path / "requests.jsonl", records)
    deployment = (
        f'{HEALTHY}[adapters]\n"{CANARY}-adapter" = {{}}\n'
        f'[[public_prefixes]]\nname = "p"\ntoken_ids = [0, 1, 2]\n'
        '[[tier]]\nkind = "lmcache"\nblock_size = 16\n'
    ).replace(f"{CANARY}-adapter", "an-adapter")

    report = run_log(log, deployment)
    render = RENDERERS[output_format].render
    text = render(report, RenderOptions(show_inconclusive=True, show_skipped=True))

    assert audit_of(report).findings
    assert CANARY not in text
    assert CANARY not in repr(audit_of(report))
