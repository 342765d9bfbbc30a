"""Options that several commands share, so that they are spelled and explained alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from prefixaudit.errors import UsageError

Colour: TypeAlias = Literal["auto", "always", "never"]
OnOffAuto: TypeAlias = Literal["auto", "on", "off"]

LogPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Files, folders or globs of request logs; plain, gzip or zstd; `-` is stdin.",
        show_default=False,
    ),
]
DeploymentOption = Annotated[
    Path | None,
    typer.Option(
        "--deployment",
        "-d",
        metavar="FILE",
        help="Deployment file; default: prefixaudit.toml beside the log.",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder: config.json, tokenizer.json, tokenizer_config.json, chat template.",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME[@VERSION]", help="Engine whose cache is modelled: vllm@0.33.0."
    ),
]
BlockSizeOption = Annotated[
    int | None,
    typer.Option("--block-size", metavar="TOKENS", min=1, help="Tokens in a block."),
]
CapacityBlocksOption = Annotated[
    int | None,
    typer.Option(
        "--capacity-blocks",
        metavar="N",
        min=0,
        help="Pool size in blocks that can hold KV (vLLM's null block is one more).",
    ),
]
CapacityGibOption = Annotated[
    float | None,
    typer.Option(
        "--capacity-gib", metavar="GIB", min=0, help="Pool size in GiB of KV (needs a model)."
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="GPU; `prefixaudit list gpus` names them."),
]
TensorParallelOption = Annotated[
    int | None,
    typer.Option("--tp", metavar="N", min=1, help="GPUs that share the model; default: 1."),
]
MemoryShareOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization",
        metavar="SHARE",
        min=0.01,
        max=1.0,
        help="vLLM's option; for SGLang mem_fraction_static.",
    ),
]
EngineLogOption = Annotated[
    Path | None,
    typer.Option(
        "--engine-log", metavar="FILE", help="Start-up log of the engine; its sizes count."
    ),
]
MeasuredOption = Annotated[
    str | None,
    typer.Option(
        "--measured",
        metavar="TOKENS_PER_S@LENGTH",
        help="A prefill throughput you measured on the GPU, instead of an assumed one: 9800@8192.",
    ),
]
EfficiencyOption = Annotated[
    str | None,
    typer.Option(
        "--efficiency", metavar="LOW-HIGH", help="Share of the dense peak to assume: 0.4-0.6."
    ),
]
UsdPerGpuHourOption = Annotated[
    float | None,
    typer.Option("--usd-per-gpu-hour", metavar="USD", min=0, help="Price of one GPU."),
]
WarmFromOption = Annotated[
    Path | None,
    typer.Option(
        "--warm-from",
        metavar="FILE",
        help="Dump of KV events (vLLM, SGLang, LMCache): what the pool holds before the log.",
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="NAME",
        help="Format of the log; default: by content. `prefixaudit list formats` names them.",
    ),
]
TraceBlockSizeOption = Annotated[
    int | None,
    typer.Option(
        "--trace-block-size",
        metavar="TOKENS",
        min=1,
        help="Tokens that a block id of a trace stands for; default: found from its records.",
    ),
]
YearOption = Annotated[
    int | None,
    typer.Option(
        "--year",
        metavar="YYYY",
        min=1970,
        max=9999,
        help="Year of the log's first line, where its times have none (vLLM's text log).",
    ),
]
MaxLogLenOption = Annotated[
    int | None,
    typer.Option(
        "--max-log-len",
        metavar="N",
        min=1,
        help="Where the vLLM server cut logged prompts; default: what its log says or shows of it.",
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Read the log as a table: the column (dots go into objects) that holds a field.",
        show_default=False,
    ),
]
MaxLineOption = Annotated[
    float | None,
    typer.Option(
        "--max-line-mib", metavar="MIB", min=0, help="Longest line that is read; default: 64."
    ),
]
MaxDecompressedOption = Annotated[
    float | None,
    typer.Option(
        "--max-decompressed-gib",
        metavar="GIB",
        min=0,
        help="Most that is read out of one compressed file; default: 64.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option("--format", "-f", metavar="NAME", help="Output format: text, json."),
]
TextOrJsonOption = Annotated[
    Literal["text", "json"], typer.Option("--format", "-f", help="Output format.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the result here, not to stdout."),
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes; default: all cores."),
]
ChatTemplateOption = Annotated[
    Path | None,
    typer.Option(
        "--chat-template", metavar="FILE", help="Chat template to use instead of the model's."
    ),
]
CacheGeneratedOption = Annotated[
    OnOffAuto,
    typer.Option(
        "--cache-generated",
        help="Do answers enter the pool? auto: where the log has them.",
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Folder of further rules. Repeatable."),
]
ColourOption = Annotated[
    Colour, typer.Option("--color", help="Colour; default: on a terminal, unless NO_COLOR is set.")
]


def in_bytes(number: float | None, unit_bytes: int) -> int | None:
    """Return a size given in a unit as bytes, None where it isn't given."""
    return None if number is None else int(number * unit_bytes)


def field_map(pairs: list[str] | None) -> dict[str, str]:
    """Return what `--map` says. Raises UsageError for something else than FIELD=COLUMN."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, column = pair.partition("=")
        if not (name and equals and column):
            raise UsageError(f"--map {pair}: FIELD=COLUMN was expected")
        found[name] = column
    return found
