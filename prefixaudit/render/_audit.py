"""The audit's part of the text report: findings, keys, what isolation would cost, proposals.

Lines come as (indent of what follows, text), to be folded by whoever prints them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prefixaudit.core.finding import Finding, Severity
from prefixaudit.core.report import AuditReport, IsolationRow, TierFigures
from prefixaudit.printable import printable
from prefixaudit.wording import percent, plural

_RULE_WIDTH = 32
_FIRST_OPEN = 3
_FIRST_FIELDS = 5
_POLICIES = {
    "shared": "shared by all",
    "public-prefix-shared": "public prefixes shared, else by tenant",
    "trust-domain": "within trust domains",
    "tenant": "within tenants",
    "user": "within users",
}


def finding_lines(audit: AuditReport, *, show_inconclusive: bool) -> Iterator[tuple[int, str]]:
    """Yield the section FINDINGS; its first line is the head."""
    found = [item for item in audit.findings if item.observation.verdict == "found"]
    open_ = [item for item in audit.findings if item.observation.verdict == "inconclusive"]
    counts = Counter(item.severity for item in found)
    named = [f"{counts[level]:,} {level.label}" for level in sorted(Severity, reverse=True)]
    named = [text for text in named if not text.startswith("0 ")]
    yield 0, f"{', '.join(named) if named else 'none'} (of {audit.num_rules} rules)"
    for item in found:
        yield from _finding(item)
    if open_ and not show_inconclusive:
        yield from _in_short(open_)
    elif open_:
        yield 2, f"  without an answer: {len(open_):,}"
        for item in open_:
            text = printable(item.observation.message)
            yield 6, f"    {item.rule}: {text}"


def _finding(item: Finding) -> Iterator[tuple[int, str]]:
    message = printable(item.observation.message)
    location = item.observation.location
    if location is not None and location.path:
        line = f":{location.line}" if location.line else ""
        message += f" ({printable(location.path)}{line})"
    yield 10, f"  {item.severity.label:<7} {item.rule}: {message}"
    if item.remediation:
        yield 14, f"          do: {_first_sentence(item.remediation)}"


def _first_sentence(text: str) -> str:
    flat = " ".join(text.split())
    for end in (". ", "; "):
        head, separator, _ = flat.partition(end)
        if separator:
            return head
    return flat.rstrip(".")


def _in_short(items: Sequence[Finding]) -> Iterator[tuple[int, str]]:
    unknown: Counter[str] = Counter()
    for item in items:
        fields = item.observation.facts.get("unknown_fields", ())
        unknown.update(str(name) for name in fields)
    rules = sorted({item.rule for item in items})
    wanted = [name for name, _ in unknown.most_common()]
    more = " …" if len(wanted) > _FIRST_FIELDS else ""
    names = f" for want of {', '.join(wanted[:_FIRST_FIELDS])}{more}"
    yield (
        10,
        (
            f"  open    {plural(len(rules), 'rule')} without an answer{names if unknown else ''}: "
            f"{', '.join(rules[:_FIRST_OPEN])}{' …' if len(rules) > _FIRST_OPEN else ''} "
            "(--show-inconclusive)"
        ),
    )


def key_lines(audit: AuditReport) -> Iterator[str]:
    """Yield the rows of the section KEYS, its head first; nothing where all keys are safe."""
    if len(audit.tiers) < 2 and all(not tier.gaps for tier in audit.tiers):
        return
    yield f"{'KEYS':<30}{'token hit rate':>15}{'of it safe':>15}    let through"
    for tier in audit.tiers:
        yield _tier_row(tier)
        if len(tier.gaps) > 1:
            for gap in tier.gaps:
                yield (
                    f"    for want of {gap.field}: {plural(gap.num_requests, 'request')}, "
                    f"{gap.num_tokens:,} tokens, {plural(gap.num_pairs, 'pair')}"
                )


def _tier_row(tier: TierFigures) -> str:
    rates = f"{percent(tier.token_hit_rate):>15}{percent(tier.safe_token_hit_rate):>15}"
    gaps = "nothing"
    if tier.gaps:
        gaps = (
            f"{plural(tier.num_unsafe_requests, 'request')}, {tier.num_unsafe_tokens:,} tokens; "
            f"+ {', '.join(tier.smallest_closing_fields)} closes it"
        )
        if tier.kind == "router-index":
            gaps = f"believes {gaps}"
    return f"  {printable(tier.name):<28}{rates}    {gaps}"


def isolation_lines(
    rows: Sequence[IsolationRow], *, num_prompt_tokens: int, prefill_flops: float | None
) -> Iterator[str]:
    """Yield the rows on isolation, their head first; nothing for fewer than two groups.

    Shares are those of all prompt tokens and of all prefill FLOPs; differences are in points.
    """
    if not any(row.num_groups > 1 for row in rows):
        return
    yield (
        f"{'WHAT ISOLATION COSTS':<44}{'token hit rate':>15}{'points':>9}"
        f"{'FLOPs saved':>15}{'points':>9}"
    )
    base = rows[0]
    for row in rows:
        label = _POLICIES[row.policy]
        if row.num_groups > 1:
            label += f" ({row.num_groups:,})"
        gained = (row.num_cached_tokens - base.num_cached_tokens) / max(1, num_prompt_tokens)
        points = "" if row is base else f"{100 * gained:+.2f}"
        share, base_share = (
            _share(item.prefill_flops_saved, prefill_flops) for item in (row, base)
        )
        more = ""
        if row is not base and share is not None and base_share is not None:
            more = f"{100 * (share - base_share):+.2f}"
        yield (
            f"  {label:<42}{percent(row.token_hit_rate):>15}{points:>9}"
            f"{percent(share):>15}{more:>9}"
        ).rstrip()


def proposal_lines(audit: AuditReport) -> Iterator[tuple[int, str]]:
    """Yield what could be declared public, for a person to decide."""
    for proposal in audit.proposed_public_prefixes[:3]:
        yield (
            4,
            f"  - {proposal.num_tenants:,} tenants begin with the same {proposal.num_tokens:,} "
            f"tokens ({proposal.num_requests:,} requests); if that is no secret, declare it: "
            f'[[public_prefixes]] hash = "{proposal.hash}"',
        )


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
