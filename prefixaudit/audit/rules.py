"""Reads rules: one TOML file each, whose name is the rule's.

The rules that come with prefixaudit lie in `rules/` of the repository, and in `prefixaudit/_rules`
once installed; `--rules DIR` adds folders. All problems of all files are reported at once.

Examples are tests, and most of a file: those of the own rules are left unread until they are asked
for. Those of added folders are checked with the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import prefixaudit
from prefixaudit.audit.predicates import PREDICATES
from prefixaudit.core.finding import Confidence, Severity
from prefixaudit.core.rule import Parameter, Rule, RuleExample
from prefixaudit.errors import ConfigurationError, UsageError, unknown_name
from prefixaudit.tables import Table, TomlDocument

_EXAMPLE: Final = "example"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "text": ("text", (str,)),
    "texts": ("a list of texts", (list,)),
    "integer": ("an integer", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "table": ("a table", (dict,)),
    "tables": ("a list of tables", (list,)),
}


def rules_folder() -> Path:
    """Return the folder of the rules that come with prefixaudit."""
    package = Path(prefixaudit.__file__).parent
    installed = package / "_rules"
    return installed if installed.is_dir() else package.parent / "rules"


def load_rules(folders: Sequence[Path] = ()) -> tuple[Rule, ...]:
    """Return the own rules and those of `folders`, by name.

    Raises UsageError for a folder that isn't there, ConfigurationError with the problems of all
    files; a name that two folders have is one.
    """
    rules: dict[str, Rule] = {}
    problems: list[str] = []
    own = rules_folder()
    for folder in (own, *folders):
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder of rules")
        for path in sorted(folder.glob("*.toml")):
            try:
                before = f"[[{_EXAMPLE}]]" if folder is own else None
                rule = read_rule(TomlDocument.read(path, before=before), path)
            except ConfigurationError as error:
                problems += error.problems
                continue
            if rule.name in rules:
                problems.append(
                    f"{path}: the rule '{rule.name}' is also in {rules[rule.name].path}"
                )
                continue
            rules[rule.name] = rule
    if problems:
        raise ConfigurationError(problems)
    return tuple(rules[name] for name in sorted(rules))


def select_rules(rules: Iterable[Rule], names: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules of these names. Raises UsageError for one that isn't known."""
    by_name = {rule.name: rule for rule in rules}
    for name in names:
        if name not in by_name:
            raise UsageError(unknown_name("rule", name, by_name))
    return tuple(by_name[name] for name in names)


def examples_of(rule: Rule) -> tuple[RuleExample, ...]:
    """Return the examples in the rule's file. Raises ConfigurationError with all its problems."""
    path = Path(rule.path)
    document = TomlDocument.read(path)
    read_rule(document, path)
    return _examples(document)


def read_rule(document: TomlDocument, path: Path) -> Rule:
    """Return the rule of a file. Raises ConfigurationError with all its problems.

    Those of its examples are among them, as far as the document holds them.
    """
    root = document.root
    name = path.stem
    if not _NAME.fullmatch(name):
        document.problem(
            (), f"the file's name '{name}' is no rule name; expected words-with-dashes"
        )
    predicate = root.text("predicate", choices=PREDICATES.names)
    scope: Any = root.text("scope", choices=("deployment", "lookup", "report"))
    params = root.any_value("params", default={})
    if predicate in PREDICATES.names:
        spec = PREDICATES[predicate]
        if scope in ("deployment", "lookup", "report") and spec.scope != scope:
            root.problem("scope", f"is '{scope}'; the predicate '{predicate}' is of '{spec.scope}'")
        _check_params(root, params, spec.parameters)
    status: Any = root.text("status", choices=("preview", "stable", "deprecated"))
    severity = root.text("severity", choices=tuple(item.label for item in Severity))
    confidence = root.text("confidence", choices=tuple(item.label for item in Confidence))
    _examples(document)
    texts = {key: root.text(key).strip() for key in ("title", "since", "rationale", "remediation")}
    false_positives = root.text("false_positives").strip()
    references = root.texts("references")
    document.finish()
    return Rule(
        name=name,
        title=texts["title"],
        severity=Severity[severity.upper()],
        confidence=Confidence[confidence.upper()],
        scope=scope,
        since=texts["since"],
        status=status,
        predicate=predicate,
        params=params,
        rationale=texts["rationale"],
        remediation=texts["remediation"],
        false_positives=false_positives,
        references=references,
        path=str(path),
    )


def _check_params(root: Table, params: object, known: Mapping[str, Parameter]) -> None:
    if not isinstance(params, dict):
        root.problem("params", "is no table; expected the predicate's parameters")
        return
    for key, value in params.items():
        if key not in known:
            names = ", ".join(sorted(known)) or "none"
            root.problem("params", f"unknown parameter '{key}'; the predicate takes: {names}")
            continue
        expected, types = _TYPES[known[key].kind]
        fits = isinstance(value, types) and (isinstance(value, bool) == (bool in types))
        if known[key].kind == "texts" and fits:
            fits = all(isinstance(item, str) for item in value)
        if known[key].kind == "tables" and fits:
            fits = all(isinstance(item, dict) for item in value)
        choices = known[key].choices
        if not fits:
            root.problem("params", f"`{key}` is not {expected}")
        elif choices:
            for item in value if isinstance(value, list) else [value]:
                if item not in choices:
                    root.problem("params", f"`{key}`: {unknown_name('value', str(item), choices)}")
    for key, parameter in known.items():
        if parameter.is_required and key not in params:
            root.problem("params", f"`{key}` is missing: {parameter.about}")


def _examples(document: TomlDocument) -> tuple[RuleExample, ...]:
    return tuple(_example(table) for table in document.root.tables(_EXAMPLE))


def _example(table: Table) -> RuleExample:
    deployment: dict[str, Any] = {}
    given = table.any_value("deployment", default={})
    if isinstance(given, dict):
        deployment = dict(given)
    else:
        table.problem("deployment", "is no table; expected the tables of a prefixaudit.toml")
    engine = table.text("engine", default=None)
    if engine is not None:
        name, _, version = engine.partition("@")
        tables = {"name": name} | ({"version": version} if version else {})
        deployment["engine"] = {**tables, **deployment.get("engine", {})}
    return RuleExample(
        name=table.text("name"),
        deployment=deployment,
        requests=_tables(table, "requests"),
        events=_tables(table, "events"),
        findings=table.texts("findings"),
        readings=_tables(table, "readings"),
    )


def _tables(table: Table, key: str) -> tuple[Mapping[str, Any], ...]:
    value = table.any_value(key, default=[])
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return tuple(value)
    table.problem(key, "is no list of tables")
    return ()
