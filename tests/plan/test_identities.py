"""Plans of logs with tenants and salts; other engines; block sizes from one tokenization."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.deployment import Overrides, load_deployment
from prefixaudit.plan import PlanOptions, PlanReport, plan

VLLM = '[model]\nname = "m"\n[engine]\nname = "vllm"\nversion = "0.33.0"\n'
PUBLIC = f"[[public_prefixes]]\ntoken_ids = {list(range(32))}\n"


def write_log(folder: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def four_requests(folder: Path) -> Path:
    """Four requests for the same 80 tokens (five blocks of 16), by tenant; no salt is used."""
    who = [("acme", "ann"), ("acme", "abe"), ("bob", "bea"), ("cora", "cia")]
    return write_log(
        folder,
        (
            {
                "request_id": f"r{number}",
                "arrival_s": 1_772_438_400 + number,
                "tenant": tenant,
                "user": user,
                "cache_salt": None,
                "lora_name": None,
                "prompt_token_ids": [*range(80), number],
            }
            for number, (tenant, user) in enumerate(who)
        ),
    )


def plan_of(log: Path, deployment: str, options: PlanOptions) -> PlanReport:
    file = log.parent / "prefixaudit.toml"
    file.write_text(deployment)
    return plan([str(log)], load_deployment(file), options)


def rates(report: PlanReport, sweep: str) -> dict[str, float | None]:
    """Return hit rates by label, as tokens of the 4 * 81 of the log."""
    return {
        option.label: None
        if option.token_hit_rate is None
        else round(option.token_hit_rate * report.num_prompt_tokens)
        for option in report.options
        if option.sweep == sweep
    }


def test_isolation_costs_what_it_keeps_apart(tmp_path: Path) -> None:
    """Shared: three of four hit 80 tokens. By tenant one does, by user none.

    With 32 public tokens all three hit those, and acme's second request the other 48.
    """
    report = plan_of(
        four_requests(tmp_path),
        f"{VLLM}{PUBLIC}[pool]\ncapacity_blocks = 100\n",
        PlanOptions(has_isolation=True),
    )

    assert rates(report, "isolation") == {
        "shared by all": 240,
        "within a tenant, public prefixes shared": 3 * 32 + 48,
        "within a tenant": 80,
        "within a user": 0,
    }


def test_safe_rate_is_that_of_the_complete_identity(tmp_path: Path) -> None:
    """The engine's key has no tenant: 240 tokens are hit, 80 of them by the tenant's own blocks."""
    report = plan_of(
        four_requests(tmp_path),
        f"{VLLM}[pool]\ncapacity_blocks = 100\n",
        PlanOptions(capacities_blocks=(100,)),
    )

    [option] = [o for o in report.options if o.capacity_blocks == 100]
    assert option.token_hit_rate == pytest.approx(240 / 324)
    assert option.safe_token_hit_rate == pytest.approx(80 / 324)


def test_block_sizes_come_from_one_tokenization(tmp_path: Path) -> None:
    """80 shared tokens are 80 in blocks of 8 and 16, 64 in blocks of 32; the pool is as large."""
    report = plan_of(
        four_requests(tmp_path),
        f"{VLLM}[pool]\ncapacity_blocks = 100\n",
        PlanOptions(block_sizes=(8, 16, 32)),
    )

    assert report.block_size == 16
    assert rates(report, "block-size") == {
        "8 tokens a block": 240,
        "16 tokens a block": 240,
        "32 tokens a block": 192,
    }
    sizes = [option.capacity_blocks for option in report.options if option.sweep == "block-size"]
    assert sizes == [200, 100, 50]


def test_policies_of_a_radix_tree_are_its_own(tmp_path: Path) -> None:
    log = four_requests(tmp_path)

    report = plan(
        [str(log)],
        load_deployment(
            None, Overrides(engine="sglang@0.5.23", block_size=16, capacity_blocks=100)
        ),
        PlanOptions(policies=("mru", "lfu", "belady")),
    )

    assert list(rates(report, "policy").values()) == [240, 240, 240, 240]
    assert all(option.timed is None for option in report.options)


def test_output_holds_no_text_of_the_log(tmp_path: Path) -> None:
    """Token prompts, and a tenant named to steer a terminal."""
    log = write_log(
        tmp_path,
        (
            {
                "request_id": f"r{number}",
                "arrival_s": 1_772_438_400 + number,
                "tenant": f"evil\u001b[31m{number % 2}",
                "prompt_token_ids": [*range(80), number],
                "cache_salt": "s3cret",
            }
            for number in range(40)
        ),
    )
    from prefixaudit.plan.formats import FORMATS

    report = plan_of(
        log,
        f"{VLLM}[pool]\ncapacity_blocks = 6\n",
        PlanOptions(has_isolation=True),
    )

    assert any("evil" in loser.group for loser in report.losers)
    for name in FORMATS:
        text = FORMATS[name].render(report)
        assert "\u001b" not in text
        assert "s3cret" not in text


def test_hardware_of_the_deployment_is_the_default(tmp_path: Path) -> None:
    model = Path(__file__).parents[1] / "data" / "model-configs" / "llama-3.1-8b"
    deployment = (
        f'[model]\nname = "m"\npath = "{model}"\n'
        '[engine]\nname = "vllm"\nversion = "0.33.0"\n'
        '[hardware]\ngpu = "h100-sxm"\ntensor_parallel = 2\nusd_per_gpu_hour = 3\n'
    )

    report = plan_of(four_requests(tmp_path), deployment, PlanOptions(ttft_p95_s=5.0))

    assert report.hardware == "2 x H100 SXM"
    [option] = [o for o in report.options if o.capacity_blocks == report.capacity_blocks]
    assert option.gpus_needed == (2, 2)
    assert option.usd_per_day == (2 * 3 * 24, 2 * 3 * 24)
