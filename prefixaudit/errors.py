"""Everything that prefixaudit raises on purpose.

PrefixAuditError
├── UsageError        wrong options or arguments                     exit 2
├── ConfigurationError  a deployment, model, rule or table file is wrong  exit 2
└── IncompleteError   the audit could not be finished (unreadable input …)  exit 3

Nothing below `cli` prints or exits. A message has the form
`path:line: what is wrong; what was expected`, and holds no prompt text, salt or key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PrefixAuditError(Exception):
    """The base of all errors that a user is meant to read; `hint` is one line of advice."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(PrefixAuditError):
    """The command was called wrongly."""

    exit_code = 2


class ConfigurationError(PrefixAuditError):
    """A file that describes the deployment is wrong; all problems of the file at once."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str], *, hint: str | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems), hint=hint)


class IncompleteError(PrefixAuditError):
    """The audit can't give its answer: input is unreadable or a step failed."""


_MOST_NAMES = 100


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that isn't known, with the nearest and the known ones.

    More than a screen of names helps nobody: then only their number is given.
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1)
    suggestion = f"; did you mean '{nearest[0]}'?" if nearest else ""
    if len(names) > _MOST_NAMES:
        return (
            f"unknown {kind} '{name}'; {len(names)} are known, see `prefixaudit list`{suggestion}"
        )
    return f"unknown {kind} '{name}'; known: {', '.join(names)}{suggestion}"
