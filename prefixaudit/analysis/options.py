"""How a log is read and replayed, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prefixaudit.deployment import Deployment
    from prefixaudit.logs import ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How a log is read and replayed.

    `trace_block_size` is the size in tokens of a trace's blocks, None: found from its records.
    `year`, `max_log_len` and `field_map` are those of ReadOptions; so are the limits of a line and
    of what comes out of an archive, None: its defaults.
    `jobs` None is as many processes as the log is worth, at most all cores. `audit` False leaves
    the audit out; `rule_folders` hold rules beside the own ones. `why` False leaves out where
    tokens go; `what_if` replays the log again for each cause that can be repaired. `warm_from` is a
    dump of KV events: what the pool holds before the log.
    """

    log_format: str | None = None
    trace_block_size: int | None = None
    year: int | None = None
    max_log_len: int | None = None
    field_map: Mapping[str, str] = field(default_factory=dict)
    max_line_bytes: int | None = None
    max_decompressed_bytes: int | None = None
    cache_generated: Literal["auto", "on", "off"] = "auto"
    jobs: int | None = None
    audit: bool = True
    rule_folders: tuple[Path, ...] = ()
    why: bool = True
    what_if: bool = False
    warm_from: Path | None = None

    def read_options(self, deployment: Deployment | None = None) -> ReadOptions:
        """Return how logs are read; the deployment's engine decides what some bodies become."""
        from prefixaudit.logs import ReadOptions

        found = ReadOptions(
            log_format=self.log_format,
            trace_block_size=self.trace_block_size,
            year=self.year,
            max_log_len=self.max_log_len,
            field_map=self.field_map,
        )
        if self.max_line_bytes is not None:
            found = replace(found, max_line_bytes=self.max_line_bytes)
        if self.max_decompressed_bytes is not None:
            found = replace(found, max_decompressed_bytes=self.max_decompressed_bytes)
        engine = None if deployment is None else deployment.engine
        if engine is not None:
            found = replace(found, engine=engine.name, engine_version=engine.version)
        return found
