r"""Reads [audit] and [budgets]: what fails a gate, and what is knowingly let through.

[audit]
fail_on = "medium"             # informational, low, medium, high; or "never"
fail_on_inconclusive = false   # does a question without an answer fail, too?

[[audit.ignore]]
rule = "salt-dropped-by-store"
subject = "shared store*"      # default: all; `*` and `?` stand for any text
reason = "the store is emptied between tenants"
owner = "platform@example.com"
expires = 2026-12-31           # the last day on which it holds

[budgets]                      # shares and rates lie in 0..1
min_token_hit_rate = 0.5
min_safe_hit_rate = 0.5
min_flops_saved_share = 0.4
max_cross_tenant_private_tokens = 0
max_unknown_share = 0.1        # requests of which an identity field isn't known
max_token_hit_rate_drop = 0.02 # against the figures in a baseline
max_safe_hit_rate_drop = 0.02
max_flops_saved_share_drop = 0.02
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from prefixaudit.core.finding import Finding, Severity

if TYPE_CHECKING:
    from prefixaudit.tables import Table

SEVERITY_NAMES: Final = tuple(severity.label for severity in Severity)
NEVER: Final = "never"
DEFAULT_FAIL_ON: Final = Severity.MEDIUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """An accepted finding: why, who answers for it, and the last day on which it is ignored."""

    rule: str
    subject: str
    reason: str
    owner: str
    expires: date
    line: int = 0

    def covers(self, finding: Finding) -> bool:
        """Say whether rule and subject are those of the finding; the day is the caller's."""
        return finding.rule == self.rule and fnmatch.fnmatchcase(
            finding.observation.subject, self.subject
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Bounds on figures; None is no bound. Rates and shares in 0..1."""

    min_token_hit_rate: float | None = None
    min_safe_hit_rate: float | None = None
    min_flops_saved_share: float | None = None
    max_cross_tenant_private_tokens: int | None = None
    max_unknown_share: float | None = None
    max_token_hit_rate_drop: float | None = None
    max_safe_hit_rate_drop: float | None = None
    max_flops_saved_share_drop: float | None = None

    def given(self) -> Iterator[tuple[str, float]]:
        """Iterate over the bounds that are set, by name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicy:
    """What fails: findings at or above `fail_on` (None: none), and budgets that are missed."""

    fail_on: Severity | None = DEFAULT_FAIL_ON
    fail_on_inconclusive: bool = False
    ignores: tuple[Ignore, ...] = ()
    budgets: Budgets = Budgets()


def severity_or_never(text: str) -> Severity | None:
    """Return the severity of a name in SEVERITY_NAMES, None for `never`."""
    return None if text == NEVER else Severity[text.upper()]


def read_policy(audit: Table, budgets: Table) -> AuditPolicy:
    """Read the two tables; problems are noted in their document."""
    fail_on = audit.text("fail_on", default=DEFAULT_FAIL_ON.label, choices=(*SEVERITY_NAMES, NEVER))
    known = fail_on in SEVERITY_NAMES
    return AuditPolicy(
        fail_on=severity_or_never(fail_on) if known else None,
        fail_on_inconclusive=audit.boolean("fail_on_inconclusive", default=False),
        ignores=tuple(_ignore(table) for table in audit.tables("ignore")),
        budgets=_budgets(budgets),
    )


def _ignore(table: Table) -> Ignore:
    expires = table.any_value("expires")
    if isinstance(expires, datetime):
        expires = expires.date()
    if not isinstance(expires, date):
        if "expires" in table:
            table.problem("expires", "is no date; expected a day like 2026-12-31, without quotes")
        expires = date.max
    texts = {key: table.text(key) for key in ("rule", "reason", "owner")}
    for key in ("reason", "owner"):
        if key in table and isinstance(table.data[key], str) and not texts[key].strip():
            table.problem(key, "is empty")
    return Ignore(
        rule=texts["rule"],
        subject=table.text("subject", default="*"),
        reason=texts["reason"],
        owner=texts["owner"],
        expires=expires,
        line=table.document.line(table.path) or 0,
    )


def _budgets(table: Table) -> Budgets:
    shares = {
        field.name: table.number(field.name, default=None, minimum=0, maximum=1)
        for field in fields(Budgets)
        if not field.name.endswith("_tokens")
    }
    tokens = table.integer("max_cross_tenant_private_tokens", default=None, minimum=0)
    return Budgets(max_cross_tenant_private_tokens=tokens, **shares)
