"""The audit's part of the text report."""

from __future__ import annotations

from prefixaudit.core.report import IsolationRow
from prefixaudit.render._audit import isolation_lines


def test_isolation_shows_shares_of_all_prefill_flops_and_points_lost() -> None:
    rows = [
        IsolationRow(
            policy="shared",
            num_groups=1,
            num_requests_unknown=0,
            num_cached_tokens=500,
            token_hit_rate=0.5,
            prefill_flops_saved=480.0,
        ),
        IsolationRow(
            policy="tenant",
            num_groups=2,
            num_requests_unknown=0,
            num_cached_tokens=400,
            token_hit_rate=0.4,
            prefill_flops_saved=360.0,
        ),
    ]

    _, shared, tenants = isolation_lines(rows, num_prompt_tokens=1000, prefill_flops=1200.0)

    assert shared.split() == ["shared", "by", "all", "50.00", "%", "40.00", "%"]
    # 400 of 1,000 tokens and 360 of 1,200 FLOPs: ten points less of each.
    assert tenants.split()[-6:] == ["40.00", "%", "-10.00", "30.00", "%", "-10.00"]
