"""Finds the member that a name given to `explain` stands for."""

from __future__ import annotations

from prefixaudit.cli.kinds import KINDS
from prefixaudit.errors import UsageError, unknown_name


def page_of(name: str) -> list[str]:
    """Return the page of `KIND:NAME` or of a bare name that one kind has, as lines.

    Raises UsageError for an unknown kind or name, and for a bare name that several kinds have.
    """
    singulars = {KINDS[plural].singular: KINDS[plural] for plural in KINDS.names}
    kind_name, colon, member = name.partition(":")
    if colon:
        kind = singulars.get(kind_name)
        if kind is None and kind_name in KINDS.names:
            kind = KINDS[kind_name]
        if kind is None:
            raise UsageError(unknown_name("kind", kind_name, singulars))
        return kind.explain(member)
    bare = name.partition("@")[0]
    found = [singular for singular, kind in singulars.items() if bare in kind.names()]
    if len(found) == 1:
        return singulars[found[0]].explain(name)
    if found:
        choices = ", ".join(f"{singular}:{name}" for singular in found)
        raise UsageError(f"'{name}' is the name of several things; give one of {choices}")
    known = sorted({member for kind in singulars.values() for member in kind.names()})
    raise UsageError(unknown_name("name", name, known))
