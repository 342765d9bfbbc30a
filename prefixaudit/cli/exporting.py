"""What `prefixaudit export` does: gathers the trace, writes it, says what was left out."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from prefixaudit.analysis import AnalysisOptions, Progress
from prefixaudit.analysis.assembly import key_fields, why_incomplete
from prefixaudit.analysis.pipeline import gather_logs
from prefixaudit.chain.export import load_key, write_trace
from prefixaudit.chain.export_lines import write_bailian, write_mooncake
from prefixaudit.cli import streams
from prefixaudit.deployment import Deployment
from prefixaudit.errors import IncompleteError


def export_logs(
    paths: Sequence[str],
    deployment: Deployment,
    options: AnalysisOptions,
    progress: Progress,
    *,
    output: Path,
    layout: Literal["native", "mooncake", "bailian"],
    key: Path | None,
) -> int:
    """Write the trace and return the exit code: 3 where the audit of it would be incomplete.

    Raises IncompleteError where nothing could be replayed; then nothing is written.
    """
    secret = load_key(key, os.environ)
    gathered = gather_logs(paths, deployment, options, progress)
    trace = gathered.trace
    num_requests = 0 if trace is None else trace.num_requests
    incomplete = why_incomplete(gathered, num_requests)
    if trace is None:
        raise IncompleteError(incomplete or "no request could be replayed")
    content = io.BytesIO()
    if layout == "native":
        write_trace(trace, content, key=secret)
    else:
        # These layouts hold no identity: what the pool would keep apart gets ids of its own.
        write = write_mooncake if layout == "mooncake" else write_bailian
        write(trace, content, namespaces=trace.namespaces(key_fields(deployment)))
    streams.write_file(output, content.getvalue())
    streams.note(
        f"{output}: {num_requests:,} requests, {trace.num_distinct_blocks:,} distinct "
        f"{trace.block_size}-token blocks; {len(gathered.skipped):,} records skipped"
    )
    if incomplete is not None:
        streams.complain(f"incomplete: {incomplete}")
        return 3
    return 0
