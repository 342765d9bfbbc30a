"""`prefixaudit plan`: how large a pool, how many servers, and what each choice costs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def plan(
    paths: options.LogPaths,
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
    capacities: Annotated[
        str | None,
        typer.Option(
            "--capacities",
            metavar="N,N...",
            help="Pool sizes (blocks); default: half, this one, double, knee, all.",
        ),
    ] = None,
    block_sizes: Annotated[
        str | None,
        typer.Option("--block-sizes", metavar="N,N...", help="Block sizes (tokens) to compare."),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies", metavar="NAME,...", help="Eviction: lru, fifo, lfu, slru, belady."
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            metavar="NAME[:TP],...",
            help="GPUs of a replica, the deployed one first: h100-sxm:2,h200.",
        ),
    ] = None,
    kv_cache_dtypes: Annotated[
        str | None,
        typer.Option("--kv-cache-dtypes", metavar="TYPE,...", help="KV types to compare."),
    ] = None,
    tiers: Annotated[
        str | None,
        typer.Option(
            "--tiers",
            metavar="NAME:GIB,...",
            help="Tiers below the GPU, the fastest first: cpu:256,nvme:2000.",
        ),
    ] = None,
    tier_writes: Annotated[
        Literal["through", "on-eviction"],
        typer.Option("--tier-writes", help="When does a block come to the first tier?"),
    ] = "through",
    promote: Annotated[
        bool,
        typer.Option(
            "--promote/--no-promote", help="Does a fetched block go up to the first tier?"
        ),
    ] = True,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", metavar="N,N...", help="Numbers of replicas to compare."),
    ] = None,
    routings: Annotated[
        str | None,
        typer.Option(
            "--routing",
            metavar="NAME,...",
            help="round-robin, random, session, consistent-hash, dynamo, llm-d.",
        ),
    ] = None,
    isolation: Annotated[
        bool, typer.Option("--isolation", help="What keeping tenants and users apart costs.")
    ] = False,
    load: Annotated[
        float, typer.Option("--load", metavar="FACTOR", min=0.001, help="Speed of the arrivals.")
    ] = 1.0,
    answer_tokens: Annotated[
        int | None,
        typer.Option(
            "--answer-tokens", metavar="N", min=1, help="Length of answers that aren't logged."
        ),
    ] = None,
    ttft_p95_s: Annotated[
        float | None,
        typer.Option("--ttft-p95", metavar="SECONDS", min=0.0, help="Target to size GPUs for."),
    ] = None,
    usd_per_gpu_hour: options.UsdPerGpuHourOption = None,
    throughput: Annotated[
        str | None,
        typer.Option(
            "--throughput",
            metavar="TOKENS_PER_S,STEP_MS",
            help="What you measured: prefill tokens a second and a decode step; needs no GPU.",
        ),
    ] = None,
    measured: options.MeasuredOption = None,
    efficiency: options.EfficiencyOption = None,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(
            "--max-num-batched-tokens", metavar="N", min=1, max=131072, help="Tokens of a step."
        ),
    ] = 8192,
    max_num_seqs: Annotated[
        int, typer.Option("--max-num-seqs", metavar="N", min=1, help="Requests that run at once.")
    ] = 256,
    sample: Annotated[
        float | None,
        typer.Option(
            "--sample",
            metavar="SHARE",
            min=0.0001,
            max=1.0,
            help="Also estimate the curve from a share of the conversations, with a bound.",
        ),
    ] = None,
    jobs: options.JobsOption = None,
    output_format: Annotated[
        Literal["text", "json", "markdown", "csv"],
        typer.Option("--format", "-f", help="Output format."),
    ] = "text",
    output: options.OutputOption = None,
) -> int:
    """How large a pool, how many servers, and what each choice costs.

    Pools are simulated exactly for every size; with a GPU and a model (or a measured throughput)
    the log is also served in time, by the engine's own scheduler rules, at both ends of what the
    steps may take. One recommendation, with its reasons and what it rests on.

    \b
    Examples:
      prefixaudit plan gateway.jsonl --engine vllm@0.33.0 --capacity-blocks 16384
      prefixaudit plan gateway.jsonl --model models/llama --gpus h100-sxm,h200 --ttft-p95 1.5
      prefixaudit plan trace.jsonl --policies lru,belady --replicas 2,4 --throughput 9800,12
    """
    import os

    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.cli import planning, streams
    from prefixaudit.cli.analyzing import load_for
    from prefixaudit.deployment import Overrides
    from prefixaudit.deployment.hardware import efficiency_range, measured_prefill
    from prefixaudit.plan import PlanOptions
    from prefixaudit.plan import plan as run
    from prefixaudit.plan.formats import FORMATS

    streams.check_outputs(output)
    wanted = PlanOptions(
        capacities_blocks=planning.listed(capacities, "--capacities", planning.positive),
        block_sizes=planning.listed(block_sizes, "--block-sizes", planning.positive),
        policies=planning.listed(policies, "--policies", planning.name),
        gpus=planning.listed(gpus, "--gpus", planning.gpu),
        kv_cache_dtypes=planning.listed(kv_cache_dtypes, "--kv-cache-dtypes", planning.name),
        tiers=planning.listed(tiers, "--tiers", planning.tier),
        tier_writes=tier_writes,
        promotes=promote,
        replicas=planning.listed(replicas, "--replicas", planning.positive),
        routings=planning.listed(routings, "--routing", planning.name),
        has_isolation=isolation,
        load=load,
        answer_tokens=answer_tokens,
        ttft_p95_s=ttft_p95_s,
        usd_per_gpu_hour=usd_per_gpu_hour,
        measured=planning.throughput(throughput),
        measured_prefill=None if measured is None else measured_prefill(measured),
        efficiency=None if efficiency is None else efficiency_range(efficiency),
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        sample=sample,
        jobs=jobs or os.cpu_count() or 1,
    )
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
        ),
    )
    reading = AnalysisOptions(
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
        report = run(paths, found, wanted, reading=reading, progress=progress)
    finally:
        progress.close()
    streams.write_result(FORMATS[output_format].render(report), output)
    if report.incomplete is not None:
        streams.complain(f"incomplete: {report.incomplete}")
    return report.exit_code


COMMAND = Command(run=plan, order=3)
