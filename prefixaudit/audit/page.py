"""The table of rules in rules/README.md. `python -m prefixaudit.audit.page` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prefixaudit.audit.rules import load_rules, rules_folder
from prefixaudit.core.rule import Rule, Scope

_HEAD: Final = """\
# Rules

One file a rule; its name is the rule's. `prefixaudit explain NAME` prints a rule's page, and
`--rules DIR` adds a folder of your own. This page is generated:
`python -m prefixaudit.audit.page` writes it.

A rule asks a predicate (`prefixaudit/audit/predicates/`) with its own parameters. Each finding is
`found`, or `inconclusive` with the name of what isn't known; the latter counts as informational.
The examples of a rule are its tests: one that fires, and one as near to it as possible that does
not.
"""
_SCOPES: Final[tuple[tuple[Scope, str], ...]] = (
    ("deployment", "From deployment files alone"),
    ("lookup", "From a log: who was served whose blocks"),
    ("report", "From a log: figures"),
)


def rules_page(rules: Iterable[Rule]) -> str:
    """Return rules/README.md: a table for each scope, the most severe rules first."""
    listed = sorted(rules, key=lambda rule: (-rule.severity, rule.name))
    parts = [_HEAD]
    for scope, title in _SCOPES:
        rows = [rule for rule in listed if rule.scope == scope]
        if rows:
            parts.append(f"\n## {title}\n\n| rule | severity | confidence | what is found |\n")
            parts.append("| --- | --- | --- | --- |\n")
            parts += [
                f"| [{rule.name}]({rule.name}.toml) | {rule.severity.label} | "
                f"{rule.confidence.label} | {rule.title.replace('|', chr(92) + '|')} |\n"
                for rule in rows
            ]
    return "".join(parts)


def main() -> None:
    """Write the README of the rules that come with prefixaudit."""
    path = rules_folder() / "README.md"
    path.write_text(rules_page(load_rules()), encoding="utf-8")


if __name__ == "__main__":
    main()
