"""`prefixaudit export`: write a log as an anonymous trace of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def export(
    paths: options.LogPaths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")
    ],
    layout: Annotated[
        Literal["native", "mooncake", "bailian"],
        typer.Option("--as", help="native: analyze reads it back; the others for other tools."),
    ] = "native",
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Key under which ids are hashed, to compare exports; default: "
            "PREFIXAUDIT_EXPORT_KEY, else a random one that is forgotten.",
        ),
    ] = None,
    deployment: options.DeploymentOption = None,
    model: options.ModelOption = None,
    engine: options.EngineOption = None,
    block_size: options.BlockSizeOption = None,
    log_format: options.LogFormatOption = None,
    trace_block_size: options.TraceBlockSizeOption = None,
    year: options.YearOption = None,
    max_log_len: options.MaxLogLenOption = None,
    field_map: options.MapOption = None,
    max_line_mib: options.MaxLineOption = None,
    max_decompressed_gib: options.MaxDecompressedOption = None,
    chat_template: options.ChatTemplateOption = None,
    cache_generated: options.CacheGeneratedOption = "auto",
    jobs: options.JobsOption = None,
) -> int:
    """Write a log as an anonymous trace that can be shared.

    The trace says which blocks of which requests are equal and nothing of what they say: ids are
    keyed with a secret, so that prompts can't be guessed from them. Tenants, salts and adapters
    are keyed too, request ids become numbers, times count from the first request.

    \b
    Examples:
      prefixaudit export gateway.jsonl --model models/qwen3-32b -o gateway.trace
      prefixaudit analyze gateway.trace --capacity-blocks 21400
      prefixaudit export gateway.jsonl --model models/qwen3-32b --as mooncake -o trace.jsonl
    """
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.cli import streams
    from prefixaudit.cli.analyzing import load_for
    from prefixaudit.cli.exporting import export_logs
    from prefixaudit.deployment import Overrides

    streams.check_outputs(output)
    found = load_for(
        paths,
        deployment,
        Overrides(
            model_dir=model, engine=engine, block_size=block_size, chat_template=chat_template
        ),
    )
    how = AnalysisOptions(
        log_format=log_format,
        trace_block_size=trace_block_size,
        year=year,
        max_log_len=max_log_len,
        field_map=options.field_map(field_map),
        max_line_bytes=options.in_bytes(max_line_mib, 2**20),
        max_decompressed_bytes=options.in_bytes(max_decompressed_gib, 2**30),
        cache_generated=cache_generated,
        jobs=jobs,
    )
    progress = streams.ProgressLine()
    try:
        return export_logs(paths, found, how, progress, output=output, layout=layout, key=key_file)
    finally:
        progress.close()


COMMAND = Command(run=export, order=51)
