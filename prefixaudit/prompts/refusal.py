"""What a replay gives where a request gives no prompt."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):  # noqa: N818 - a value as well: what a replay gives instead
    """A request gives no prompt: `kind` to count by, `reason` for a person, no prompt text."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return Refusal, (self.kind, self.reason)
