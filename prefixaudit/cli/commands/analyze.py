"""`prefixaudit analyze`: how much of a log could be reused, and what that saves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def analyze(
    paths: options.LogPaths,
    deployment: options.DeploymentOption = None,
    model: options.ModelOption = None,
    engine: options.EngineOption = None,
    block_size: options.BlockSizeOption = None,
    capacity_blocks: options.CapacityBlocksOption = None,
    capacity_gib: options.CapacityGibOption = None,
    gpu: options.GpuOption = None,
    tensor_parallel: options.TensorParallelOption = None,
    memory_share: options.MemoryShareOption = None,
    engine_log: options.EngineLogOption = None,
    warm_from: options.WarmFromOption = None,
    measured: options.MeasuredOption = None,
    efficiency: options.EfficiencyOption = None,
    usd_per_gpu_hour: options.UsdPerGpuHourOption = None,
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
    output_format: options.FormatOption = "text",
    output: options.OutputOption = None,
    per_request: Annotated[
        Path | None,
        typer.Option(
            "--per-request", metavar="FILE", help="Write one JSON line a request to FILE."
        ),
    ] = None,
    show_skipped: Annotated[
        bool, typer.Option("--show-skipped", help="List every skipped record, not the first few.")
    ] = False,
    show_inconclusive: Annotated[
        bool,
        typer.Option(
            "--show-inconclusive", help="List every question that has no answer, and why."
        ),
    ] = False,
    rules: options.RulesOption = None,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Look for unsafe sharing.")
    ] = True,
    why: Annotated[
        bool,
        typer.Option("--why/--no-why", help="Say where tokens go and what breaks prefixes."),
    ] = True,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Replay the log again with each such cause repaired."),
    ] = False,
    color: options.ColourOption = "auto",
) -> int:
    """How much of a log could be reused, and what that saves.

    The log is replayed exactly: chat template, tokenizer, block hashes, pool. Hit rates are given
    for the deployment's pool, for an endless one, and for every size in between. The exit code is 3
    where nothing could be replayed, or more records were skipped than replayed. A GPU adds seconds
    and, without a size, an estimate of the pool; both are ranges, and say what they assume.

    \b
    Examples:
      prefixaudit analyze gateway.jsonl.zst
      prefixaudit analyze logs/ --model models/qwen3-32b --engine vllm@0.33.0 --capacity-gib 83.6
      prefixaudit analyze log.jsonl --model models/qwen3-32b --engine vllm --gpu h100-sxm --tp 2
      prefixaudit analyze trace.jsonl --capacity-blocks 16384 --format json -o report.json
    """
    from prefixaudit.analysis import AnalysisOptions, analyse
    from prefixaudit.cli import streams
    from prefixaudit.cli.analyzing import load_for, write_rows
    from prefixaudit.core.report import RenderOptions
    from prefixaudit.deployment import Overrides
    from prefixaudit.deployment.hardware import efficiency_range, engine_log_of, measured_prefill
    from prefixaudit.render import RENDERERS

    renderer = RENDERERS[output_format]
    streams.check_outputs(output, per_request)
    found = load_for(
        paths,
        deployment,
        Overrides(
            model_dir=model,
            engine=engine,
            block_size=block_size,
            capacity_blocks=capacity_blocks,
            capacity_gib=capacity_gib,
            chat_template=chat_template,
            gpu=gpu,
            tensor_parallel=tensor_parallel,
            memory_share=memory_share,
            usd_per_gpu_hour=usd_per_gpu_hour,
            measured=None if measured is None else measured_prefill(measured),
            efficiency=None if efficiency is None else efficiency_range(efficiency),
            engine_log=None if engine_log is None else engine_log_of(engine_log),
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
        audit=audit,
        rule_folders=tuple(rules or ()),
        why=why,
        what_if=what_if,
        warm_from=warm_from,
    )
    progress = streams.ProgressLine()
    try:
        report = analyse(paths, found, how, progress)
    finally:
        progress.close()
    if per_request is not None:
        write_rows(report, per_request)
    colour = streams.wants_colour(color, output)
    text = renderer.render(
        report,
        RenderOptions(
            colour=colour, show_skipped=show_skipped, show_inconclusive=show_inconclusive
        ),
    )
    streams.write_result(text, output)
    if report.incomplete is not None:
        streams.complain(f"incomplete: {report.incomplete}")
    return report.exit_code


COMMAND = Command(run=analyze, order=1)
