"""What has to be known of a log itself: damage, cut prompts, repeats, counts and rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

LogFactKind: TypeAlias = Literal[
    "log-damaged", "log-incomplete-tail", "log-repaired", "log-encoding", "log-large-line",
    "log-truncated-prompt", "log-no-prompt", "log-duplicates", "log-read-from-both-ends",
    "metric-double-count", "trace-resolution", "block-rounding",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact:
    """What a reader of the figures has to know of the log itself, with where it stands.

    num        how many records, lines or files it is about
    sources    `path:line` of the first 100 (a path alone: the whole file)
    requests   their positions in the log, from 0, skipped records counted too; a line that is no
               record of its own has none
    num_bytes  of all of them, None where bytes say nothing
    """

    kind: LogFactKind
    severity: Literal["informational", "low", "medium"]
    about: str
    num: int
    sources: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()
    num_bytes: int | None = None
