"""Rules of `template check` and `template diff`: what a chat template can be found to do."""

from __future__ import annotations

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled


def _names() -> tuple[str, ...]:
    from prefixaudit.templates.rules import TEMPLATE_RULES

    return tuple(TEMPLATE_RULES)


def _table() -> Table:
    from prefixaudit.templates.rules import TEMPLATE_RULES

    rules = sorted(TEMPLATE_RULES.values(), key=lambda rule: (-rule.severity, rule.name))
    return Table(
        heads=("rule", "severity", "what is found"),
        rows=tuple((rule.name, rule.severity.label, rule.title) for rule in rules),
    )


def _explain(name: str) -> list[str]:
    from prefixaudit.errors import UsageError, unknown_name
    from prefixaudit.templates.rules import TEMPLATE_RULES

    if name not in TEMPLATE_RULES:
        raise UsageError(unknown_name("template rule", name, TEMPLATE_RULES))
    rule = TEMPLATE_RULES[name]
    lines = [f"template rule {rule.name}", rule.title, ""]
    since = f"{rule.since}, {rule.status}"
    lines += labelled([("severity", rule.severity.label), ("since", since)])
    for title, text in (
        ("Why it matters", rule.rationale),
        ("What to do", rule.remediation),
        ("When it is wrong", rule.false_positives),
    ):
        lines += ["", title, *labelled([("", text)])]
    return lines


KIND = Kind(
    title="rules of template check and diff",
    singular="template-rule",
    names=_names,
    table=_table,
    explain=_explain,
)
