"""What a rule needs of a server's facts, held against what is known of them.

A rule names facts and what they must be, as in `needs = { python_version = ">=3.12" }`:
`answer_needs` says whether that holds, doesn't, or can't be said and for want of which facts.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from prefixaudit.audit.server_facts import Fact, fact_of
from prefixaudit.core.audit import AuditSubject, ServerFacts, Setting
from prefixaudit.core.unknown import UNKNOWN

_COMPARISONS: Final = (">=", "<=", ">", "<")
# Who knows the seed can compute hashes: it is never shown.
_SECRETS: Final = frozenset({"hash_seed", "python_hash_seed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether needs hold: True, False, or None for want of the facts `unknown`.

    `known` are the facts that were asked for and hold, as text.
    """

    holds: bool | None
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def answer_needs(needs: Mapping[str, Any], server: ServerFacts, subject: AuditSubject) -> Answer:
    """Say whether a server has all facts that a rule needs; one that is false decides."""
    unknown: list[str] = []
    known: list[str] = []
    for name, expected in needs.items():
        value = fact_of(name, server, subject)
        result = is_as_expected(value, expected)
        if result is False:
            return Answer(holds=False)
        if result is None:
            unknown.append(name)
        else:
            shown = "set" if name in _SECRETS else written(value)
            known.append(f"{name} is {shown}")
    return Answer(holds=None if unknown else True, unknown=tuple(unknown), known=tuple(known))


def is_as_expected(value: Fact, expected: Any) -> bool | None:
    """Compare a fact with what a rule expects of it; None where it isn't known.

    true: set, or on; false: unset, or off; text: equal, `*` and `?` stand for any text, a text that
    begins with >=, <=, > or < compares versions and numbers; a list: any of these. A fact that is a
    list is as expected where one of its members is.
    """
    if value is UNKNOWN:
        return None
    if isinstance(expected, bool):
        is_set = value is not None and value is not False and value != ()
        return is_set == expected
    if isinstance(expected, list | tuple):
        answers = [is_as_expected(value, item) for item in expected]
        return True if True in answers else None if None in answers else False
    if value is None:
        return False
    if isinstance(value, tuple):
        answers = [is_as_expected(item, expected) for item in value]
        return True if True in answers else None if None in answers else False
    if isinstance(expected, str) and expected.startswith(_COMPARISONS):
        return _compare(value, expected)
    if isinstance(expected, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, expected)
    return value == expected and not isinstance(value, bool)


def _compare(value: Setting, expected: str) -> bool | None:
    sign = next(sign for sign in _COMPARISONS if expected.startswith(sign))
    try:
        left, right = Version(str(value)), Version(expected.removeprefix(sign).strip())
    except InvalidVersion:
        return None
    match sign:
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left < right


def is_in_range(version: str | None, since: str | None, before: str | None) -> bool | None:
    """Say whether since <= version < before; None where the version isn't known.

    A pre-release counts as its release: a fix that a release has is in its candidates as a rule.
    """
    if since is None and before is None:
        return True
    if version is None:
        return None
    try:
        release = Version(Version(version.removeprefix("v")).base_version)
    except InvalidVersion:
        return None
    if since is not None and release < Version(since):
        return False
    return before is None or release < Version(before)


def written(value: Fact) -> str:
    """Return a fact as text for a message."""
    if value is None or value is UNKNOWN:
        return "unset" if value is None else "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def names_of(value: Any) -> tuple[str, ...]:
    """Return a parameter that is a text or a list of texts as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
