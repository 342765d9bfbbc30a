"""A rule of the audit: a predicate with parameters, and the text that explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from prefixaudit.core.audit import AuditSubject
from prefixaudit.core.finding import Confidence, Observation, Severity

Scope: TypeAlias = Literal["deployment", "lookup", "report"]
"""What a predicate needs: deployment files alone, replayed lookups, or the figures of a report."""

Observe: TypeAlias = Callable[[AuditSubject, Mapping[str, Any]], Iterable[Observation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a predicate: its type, and whether a rule has to give it.

    `choices` are the texts it may hold; empty: any.
    """

    about: str
    kind: Literal["text", "texts", "integer", "number", "boolean", "table", "tables"]
    is_required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateSpec:
    """A question that rules ask with their own parameters."""

    title: str
    scope: Scope
    observe: Observe
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleExample:
    """A small deployment and log, and whom the rule finds: `reader <- donor`, or subjects.

    `deployment` is a prefixaudit.toml as a table (`engine = "vllm@0.10.0"` is short for one).
    `requests` are tables of identity fields with `id` and `tokens` ("system:64 a:20": 64 tokens of
    a segment, then 20 of another), `events` those of an events file, `readings` an engine's figures
    of itself (core.reading). See audit/examples.py.
    """

    name: str
    deployment: Mapping[str, Any]
    requests: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...]
    findings: tuple[str, ...]
    readings: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One file of `rules/`; its examples are read for themselves (audit.rules.examples_of)."""

    name: str
    title: str
    severity: Severity
    confidence: Confidence
    scope: Scope
    since: str
    status: Literal["preview", "stable", "deprecated"]
    predicate: str
    params: Mapping[str, Any]
    rationale: str
    remediation: str
    false_positives: str
    references: tuple[str, ...]
    path: str
