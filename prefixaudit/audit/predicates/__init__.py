"""Questions that rules ask, one file each, ending in `SPEC = PredicateSpec(...)`.

A predicate gets an AuditSubject and the rule's `params`, and yields an Observation for each subject
that it has something to say of: `found`, or `inconclusive` with the field that isn't known. It
says nothing of what is all right. Predicates don't know each other: what several need is in `_*.py`
here or in `audit` itself. A predicate that raises ends the run with the rule's name.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.core.rule import PredicateSpec
from prefixaudit.registry import Registry

PREDICATES: Final[Registry[PredicateSpec]] = Registry(
    kind="predicate", package="prefixaudit.audit.predicates", attribute="SPEC"
)
