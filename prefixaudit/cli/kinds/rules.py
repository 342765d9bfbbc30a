"""Rules of the audit, with what each finds, why it matters and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.cli.kinds import Kind
from prefixaudit.cli.tables import Table, labelled

if TYPE_CHECKING:
    from prefixaudit.core.rule import Rule


def _names() -> tuple[str, ...]:
    from prefixaudit.audit.rules import rules_folder

    return tuple(sorted(path.stem for path in rules_folder().glob("*.toml")))


def _table() -> Table:
    from prefixaudit.audit.rules import load_rules

    rules = sorted(load_rules(), key=lambda rule: (-rule.severity, rule.scope, rule.name))
    return Table(
        heads=("rule", "severity", "scope", "what is found"),
        rows=tuple((rule.name, rule.severity.label, rule.scope, rule.title) for rule in rules),
    )


def _explain(name: str) -> list[str]:
    """Return a rule's page: of one that comes with prefixaudit, or of a file `….toml`."""
    from pathlib import Path

    from prefixaudit.audit.rules import read_rule, rules_folder
    from prefixaudit.errors import UsageError, unknown_name
    from prefixaudit.tables import TomlDocument

    path = Path(name) if name.endswith(".toml") else rules_folder() / f"{name}.toml"
    if not name.endswith(".toml") and name not in _names():
        raise UsageError(unknown_name("rule", name, _names()))
    return page_of_rule(read_rule(TomlDocument.read(path), path))


def page_of_rule(rule: Rule) -> list[str]:
    """Return the page of a rule as lines."""
    from prefixaudit.audit.rules import examples_of

    inputs = {
        "deployment": "deployment files alone",
        "lookup": "a log",
        "report": "a log, for its figures",
    }
    rows = [
        ("severity", rule.severity.label),
        ("confidence", rule.confidence.label),
        ("looks at", inputs[rule.scope]),
        ("since", f"{rule.since}, {rule.status}"),
        ("predicate", rule.predicate),
        *((f"  {key}", _written(value)) for key, value in rule.params.items()),
    ]
    lines = [f"rule {rule.name}", rule.title, "", *labelled(rows)]
    for title, text in (
        ("Why it matters", rule.rationale),
        ("What to do", rule.remediation),
        ("When it is wrong", rule.false_positives),
    ):
        lines += ["", title, *labelled([("", " ".join(text.split()))])]
    lines += ["", "References", *(f"  {reference}" for reference in rule.references)]
    lines += ["", "Examples"]
    lines += labelled(
        [
            (example.name, "finds " + (", ".join(example.findings) or "nothing"))
            for example in examples_of(rule)
        ]
    )
    return lines


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " or ".join(_written(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} is {_written(item)}" for key, item in value.items())
    return str(value)


KIND = Kind(
    title="rules of the audit",
    singular="rule",
    names=_names,
    table=_table,
    explain=_explain,
)
