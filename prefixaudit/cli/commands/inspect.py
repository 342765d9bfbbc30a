"""`prefixaudit inspect`: what is in a log, and what can be said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def inspect(
    paths: options.LogPaths,
    log_format: options.LogFormatOption = None,
    trace_block_size: options.TraceBlockSizeOption = None,
    max_decompressed_gib: Annotated[
        float | None,
        typer.Option(
            "--max-decompressed-gib",
            metavar="GIB",
            min=0,
            help="Most that is read out of one compressed file; default: 64.",
        ),
    ] = None,
    max_line_mib: Annotated[
        float | None,
        typer.Option(
            "--max-line-mib", metavar="MIB", min=0, help="Longest line that is read; default: 64."
        ),
    ] = None,
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
    import orjson

    from prefixaudit.analysis.inspecting import inspect_logs
    from prefixaudit.cli import streams
    from prefixaudit.cli.inspecting import as_values, lines
    from prefixaudit.logs import ReadOptions

    streams.check_outputs(output)
    how = ReadOptions(
        log_format=log_format,
        trace_block_size=trace_block_size,
        year=year,
        max_log_len=max_log_len,
        field_map=options.field_map(field_map),
    )
    if max_decompressed_gib is not None:
        how = replace(how, max_decompressed_bytes=int(max_decompressed_gib * 2**30))
    if max_line_mib is not None:
        how = replace(how, max_line_bytes=int(max_line_mib * 2**20))
    found = inspect_logs(paths, how, jobs=jobs)
    if output_format == "json":
        text = orjson.dumps(as_values(found), option=orjson.OPT_INDENT_2).decode()
    else:
        text = "\n".join(lines(found))
    streams.write_result(text, output)
    return 0


COMMAND = Command(run=inspect, order=0)
