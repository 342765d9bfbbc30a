"""`prefixaudit why`: where two requests part, or what breaks the prefixes of a whole log."""

from __future__ import annotations

from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def why(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A request log, or a folder of them.")],
    first: Annotated[
        str | None, typer.Argument(metavar="[A]", help="A request: its id, or its line.")
    ] = None,
    second: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="Another one; default: what shares most with A."),
    ] = None,
    deployment: options.DeploymentOption = None,
    model: options.ModelOption = None,
    engine: options.EngineOption = None,
    block_size: options.BlockSizeOption = None,
    capacity_blocks: options.CapacityBlocksOption = None,
    capacity_gib: options.CapacityGibOption = None,
    log_format: options.LogFormatOption = None,
    trace_block_size: options.TraceBlockSizeOption = None,
    year: options.YearOption = None,
    max_log_len: options.MaxLogLenOption = None,
    field_map: options.MapOption = None,
    max_line_mib: options.MaxLineOption = None,
    max_decompressed_gib: options.MaxDecompressedOption = None,
    chat_template: options.ChatTemplateOption = None,
    cache_generated: options.CacheGeneratedOption = "auto",
    repairs: Annotated[
        bool,
        typer.Option(
            "--repairs/--no-repairs", help="Replay the log with each cause repaired (no A, B)."
        ),
    ] = True,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Print the text around the difference.")
    ] = False,
    output_format: options.TextOrJsonOption = "text",
    output: options.OutputOption = None,
    color: options.ColourOption = "auto",
) -> int:
    """Where and why requests part, and what a repair brings.

    With A and B, the two side by side; with A alone, A and the earlier request that it shares most
    with, after all of the log before it. Without either, the whole log: where its tokens go, and
    every cause that breaks prefixes, with the figure of a replay in which it is repaired. Prompt
    text is printed with --show-text only.

    \b
    Examples:
      prefixaudit why gateway.jsonl --model models/qwen3-32b
      prefixaudit why gateway.jsonl req-8123 req-8140 --model models/qwen3-32b
      prefixaudit why gateway.jsonl req-8140 --show-text
    """
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.cli import streams
    from prefixaudit.cli.analyzing import load_for
    from prefixaudit.deployment import Overrides
    from prefixaudit.json_text import json_text

    streams.check_outputs(output)
    found = load_for(
        [log],
        deployment,
        Overrides(
            model_dir=model,
            engine=engine,
            block_size=block_size,
            capacity_blocks=capacity_blocks,
            capacity_gib=capacity_gib,
            chat_template=chat_template,
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
        audit=False,
        what_if=repairs,
    )
    colour = streams.wants_colour(color, output)
    if first is None:
        from prefixaudit.analysis import analyse
        from prefixaudit.render._why import SCHEMA_VERSION, why_text, why_values

        progress = streams.ProgressLine()
        try:
            report = analyse([log], found, how, progress)
        finally:
            progress.close()
        if report.incomplete is not None:
            streams.complain(f"incomplete: {report.incomplete}")
        if report.why is None:
            return report.exit_code
        if output_format == "json":
            values = {"schema_version": SCHEMA_VERSION, **why_values(report.why)}
            text = json_text(values)
        else:
            text = why_text(report.why, num_requests=report.log.num_requests, colour=colour)
        streams.write_result(text, output)
        return report.exit_code
    from prefixaudit.analysis.comparing import compare
    from prefixaudit.render._comparison import comparison_text, comparison_values

    comparison = compare(log, found, how, first, second, show_text=show_text)
    if output_format == "json":
        text = json_text(comparison_values(comparison))
    else:
        text = comparison_text(comparison, colour=colour)
    streams.write_result(text, output)
    return 0


COMMAND = Command(run=why, order=20)
