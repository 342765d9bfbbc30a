"""The figures that budgets bound, by name; one that isn't known is not there.

token_hit_rate       cached / prompt tokens, in the deployment's pool
safe_hit_rate        the same with hits of another identity taken away
flops_saved_share    prefill FLOPs that hits spare / all prefill FLOPs
cross_tenant_private_tokens  tokens outside of public prefixes that came from another owner's
                     blocks, over all tiers that keep KV
unknown_share        requests of which a field that isn't known prevents an answer / requests
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prefixaudit.core.report import Report

ABOUT: Final[Mapping[str, str]] = {
    "token_hit_rate": "cached / prompt tokens",
    "safe_hit_rate": "cached tokens of the same identity / prompt tokens",
    "flops_saved_share": "prefill FLOPs spared / all",
    "cross_tenant_private_tokens": "private tokens from another owner's blocks",
    "unknown_share": "requests that an unknown field leaves without an answer / all",
}


def figures_of(report: Report) -> dict[str, float]:
    """Return the figures of a report that are known, by name."""
    audit = report.audit
    tokens = report.num_prompt_tokens
    found: dict[str, float | None] = {
        "token_hit_rate": report.this_pool.token_hit_rate,
        "flops_saved_share": report.this_pool.flops_saved_share,
    }
    if audit is not None:
        safe = audit.safe_this_pool_tokens
        found["safe_hit_rate"] = None if safe is None or not tokens else safe / tokens
        found["cross_tenant_private_tokens"] = audit.num_cross_tenant_private_tokens
        inconclusive = {
            request
            for finding in audit.findings
            if finding.observation.verdict == "inconclusive"
            for request in finding.observation.requests
        }
        if report.log.num_requests:
            found["unknown_share"] = len(inconclusive) / report.log.num_requests
    return {name: value for name, value in found.items() if value is not None}
