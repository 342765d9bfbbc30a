"""`prefixaudit inspect`: what is in a log, and what can be said of it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def inspect(
    paths: options.LogPaths,
    log_format: options.LogFormatOption = None,
    trace_block_size: options.TraceBlockSizeOption = None,
    max_line_mib: options.MaxLineOption = None,
    max_decompressed_gib: options.MaxDecompressedOption = None,
    year: options.YearOption = None,
    max_log_len: options.MaxLogLenOption = None,
    field_map: options.MapOption = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", metavar="N", min=1, help="Files read side by side, each for itself."
        ),
    ] = 1,
    output_format: Annotated[
        Literal["text", "json"], typer.Option("--format", "-f", help="Output format.")
    ] = "text",
    output: options.OutputOption = None,
) -> int:
    """What is in a log: format, fields, times, damage, and what can be said of it.

    Nothing is replayed, so no model is needed; it is what to run first. No prompt text, salt,
    tenant or user is printed. The exit code is 3 where nothing could be read.

    \b
    Examples:
      prefixaudit inspect gateway.jsonl.zst
      prefixaudit inspect logs/ --jobs 8
      prefixaudit inspect trace.jsonl --format json
    """
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.analysis.inspecting import inspect_logs
    from prefixaudit.cli import streams
    from prefixaudit.cli.inspecting import as_values, lines
    from prefixaudit.json_text import json_text

    streams.check_outputs(output)
    how = AnalysisOptions(
        log_format=log_format,
        trace_block_size=trace_block_size,
        year=year,
        max_log_len=max_log_len,
        field_map=options.field_map(field_map),
        max_line_bytes=options.in_bytes(max_line_mib, 2**20),
        max_decompressed_bytes=options.in_bytes(max_decompressed_gib, 2**30),
    )
    found = inspect_logs(paths, how.read_options(), jobs=jobs)
    text = json_text(as_values(found)) if output_format == "json" else "\n".join(lines(found))
    streams.write_result(text, output)
    return 0


COMMAND = Command(run=inspect, order=0)
