"""`prefixaudit cost`: what one prompt costs, with and without its cached prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def cost(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="Model folder with a config.json, or the file.",
            show_default=False,
        ),
    ],
    prompt: Annotated[
        int, typer.Option("--prompt", metavar="TOKENS", min=1, help="Tokens of the prompt.")
    ] = 8192,
    cached: Annotated[
        int, typer.Option("--cached", metavar="TOKENS", min=0, help="Tokens served from the cache.")
    ] = 0,
    gpu: options.GpuOption = None,
    tensor_parallel: options.TensorParallelOption = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME[@VERSION]", help="vllm or sglang.")
    ] = "vllm",
    block_size: options.BlockSizeOption = None,
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", metavar="TYPE", help="auto: the model's own.")
    ] = "auto",
    memory_share: options.MemoryShareOption = None,
    hybrid_manager: Annotated[
        bool,
        typer.Option(
            "--hybrid-manager/--no-hybrid-manager",
            help="Do windowed layers keep their window only?",
        ),
    ] = True,
    max_model_len: Annotated[
        int | None,
        typer.Option("--max-model-len", metavar="TOKENS", min=1, help="Longest served length."),
    ] = None,
    engine_log: options.EngineLogOption = None,
    tier: Annotated[
        str | None,
        typer.Option("--tier", metavar="NAME", help="Where the cached blocks are; default: GPU."),
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option("--lora-rank", metavar="N", min=1, help="Adapter on q, k, v, o.")
    ] = None,
    measured: options.MeasuredOption = None,
    efficiency: options.EfficiencyOption = None,
    usd_per_gpu_hour: options.UsdPerGpuHourOption = None,
    output_format: options.TextOrJsonOption = "text",
    output: options.OutputOption = None,
) -> None:
    """What one prompt costs, with and without its cached prefix.

    FLOPs are exact and by component. Bytes follow the engine's own rule. Seconds, blocks and money
    are ranges, and what they assume is printed with them.

    \b
    Examples:
      prefixaudit cost models/llama --prompt 8192 --cached 4096
      prefixaudit cost models/llama --prompt 8192 --cached 4096 --gpu h100-sxm --tp 2
      prefixaudit cost models/llama --gpu h100-sxm --engine-log vllm.log --format json
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.costing import Wish, answer, as_json, as_text

    estimate = answer(
        Wish(
            model=model,
            prompt=prompt,
            cached=cached,
            gpu=gpu,
            tensor_parallel=tensor_parallel or 1,
            engine=engine,
            block_size=block_size,
            kv_cache_dtype=kv_cache_dtype,
            memory_share=memory_share,
            has_hybrid_manager=hybrid_manager,
            max_model_len=max_model_len,
            engine_log=engine_log,
            tier=tier,
            lora_rank=lora_rank,
            measured=measured,
            efficiency=efficiency,
            usd_per_gpu_hour=usd_per_gpu_hour,
        )
    )
    text = as_json(estimate) if output_format == "json" else as_text(estimate, model.resolve().name)
    streams.write_result(text, output)


COMMAND = Command(run=cost, order=40)
