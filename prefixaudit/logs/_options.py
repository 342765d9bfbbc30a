"""What a user can say about how logs are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_MAX_LINE_BYTES: Final = 64 * 2**20
DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 64 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How logs are read.

    log_format              a format's name; None recognises it by content, file by file
    max_line_bytes          a longer line is skipped with its size, and never held in memory
    max_decompressed_bytes  of one compressed file; what lies behind is skipped, and counted once
    trace_block_size        tokens a hash id of a trace stands for; None: the format's own rule
    year                    of the first line of a log whose times have none (vLLM's text log)
    max_log_len             characters and ids after which a vLLM server cut its prompts
                            (`--max-log-len`); None: what the log says or shows of it
    engine, engine_version  of the server that rendered the prompts, where it's known: what its
                            Messages endpoint makes of a body differs
    field_map               our field -> the log's column (dots go into objects); with it, and
                            without `log_format`, files are read as tables
    """

    log_format: str | None = None
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    trace_block_size: int | None = None
    year: int | None = None
    max_log_len: int | None = None
    engine: str | None = None
    engine_version: str | None = None
    field_map: Mapping[str, str] = field(default_factory=dict)
