"""`prefixaudit template`: is a chat template prefix-stable, and what does a new one invalidate?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command

if TYPE_CHECKING:
    from prefixaudit.core.gate import GateReport
    from prefixaudit.core.report import RenderOptions

group = typer.Typer(
    help="Is a chat template prefix-stable? What does a new one invalidate?\n\n"
    "\b\nExamples:\n"
    "  prefixaudit template check ./model\n"
    "  prefixaudit template diff ./old.jinja ./new.jinja",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)

ModelFolderOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder: its tokenizer and special tokens; default: the template's own folder.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="NAME",
        help="Prepare messages as this engine's server does: vllm, sglang; default: as sent.",
    ),
]
KwargsOption = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Variables for every chat, as an object: '{\"enable_thinking\": false}'.",
    ),
]
FailOnOption = Annotated[
    Literal["informational", "low", "medium", "high", "never"],
    typer.Option(
        "--fail-on",
        metavar="SEVERITY",
        help="Exit 1 from here: informational, low, medium, high; or never.",
    ),
]
GateFormatOption = Annotated[
    str,
    typer.Option(
        "--format", "-f", metavar="NAME", help="text, json, sarif, junit, github or markdown."
    ),
]
ShowTextOption = Annotated[
    bool,
    typer.Option("--show-text", help="Print the text around each first difference (not a log's)."),
]


@group.command("check")
def check(
    template: Annotated[
        Path,
        typer.Argument(
            metavar="TEMPLATE",
            help="A chat template, or a model folder with its templates and tokenizer.",
            show_default=False,
        ),
    ],
    model: ModelFolderOption = None,
    server: ServerOption = None,
    kwargs: KwargsOption = None,
    fail_on: FailOnOption = "medium",
    show_text: ShowTextOption = False,
    output_format: GateFormatOption = "text",
    output: options.OutputOption = None,
    color: options.ColourOption = "auto",
) -> int:
    """Is a chat template prefix-stable? No log needed.

    A fixed set of conversations is rendered with the template: plain turns, tools, tool loops,
    reasoning, null content, parts, images, a long history. The table says where a prompt is not the
    beginning of the next one, and what the model doesn't see. Lengths are in tokens where there is
    a tokenizer, else in characters. Exit 1: a finding at or above --fail-on.

    \b
    Examples:
      prefixaudit template check models/qwen3-32b
      prefixaudit template check chat_template.jinja --model models/qwen3-32b --server vllm
      prefixaudit template check chat_template.jinja --format sarif -o template.sarif
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.templating import kwargs_from, renderer_for
    from prefixaudit.deployment.policy import severity_or_never
    from prefixaudit.render._template import check_text, check_values
    from prefixaudit.templates import as_gate, check_templates, load_source

    streams.check_outputs(output)
    severity = severity_or_never(fail_on)
    render = renderer_for(output_format)
    report = check_templates(
        load_source(template, model), server=server, variables=kwargs_from(kwargs)
    )
    gate = as_gate(report, severity)

    def as_text(gate: GateReport, how: RenderOptions) -> str:
        return check_text(report, gate, how, show_text=show_text)

    return _finish(
        gate, render(as_text, lambda: check_values(report, gate)), output=output, color=color
    )


@group.command("diff")
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The template in use, or its folder.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The new one, or its folder.")],
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="LOG", help="Request log to render with both. Repeatable."),
    ] = None,
    deployment: options.DeploymentOption = None,
    model: options.ModelOption = None,
    engine: options.EngineOption = None,
    block_size: options.BlockSizeOption = None,
    capacity_blocks: options.CapacityBlocksOption = None,
    capacity_gib: options.CapacityGibOption = None,
    log_format: options.LogFormatOption = None,
    cache_generated: options.CacheGeneratedOption = "auto",
    roll_out_at: Annotated[
        float,
        typer.Option(
            "--roll-out-at",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Share of the log that the old template serves before the new one takes over.",
        ),
    ] = 0.5,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="GPU, for seconds; `list gpus` names them."),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option("--tp", metavar="N", min=1, help="GPUs that share the model.")
    ] = 1,
    fail_on: FailOnOption = "medium",
    show_text: ShowTextOption = False,
    output_format: GateFormatOption = "text",
    output: options.OutputOption = None,
    color: options.ColourOption = "auto",
) -> int:
    """What does a new chat template invalidate?

    Without a log: which of the fixed conversations change, from where, and which answers of
    `template check` do; findings are those that the new template has and the old one hasn't. With
    a log: which of its prompts change, what share of the cached tokens becomes useless at the
    roll-out, what it costs to warm up again, and the steady state before and after.

    \b
    Examples:
      prefixaudit template diff old.jinja new.jinja --model models/qwen3-32b
      prefixaudit template diff old.jinja new.jinja --log gateway.jsonl --model models/qwen3-32b
    """
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.cli import streams
    from prefixaudit.cli.analyzing import load_for
    from prefixaudit.cli.templating import renderer_for
    from prefixaudit.deployment import Overrides
    from prefixaudit.deployment.policy import severity_or_never
    from prefixaudit.render._template import diff_text, diff_values
    from prefixaudit.templates import load_source
    from prefixaudit.templates.diffing import DiffOptions, diff_as_gate, diff_templates

    streams.check_outputs(output)
    severity = severity_or_never(fail_on)
    render = renderer_for(output_format)
    found = load_for(
        log or [],
        deployment,
        Overrides(
            model_dir=model,
            engine=engine,
            block_size=block_size,
            capacity_blocks=capacity_blocks,
            capacity_gib=capacity_gib,
        ),
    )
    progress = streams.ProgressLine()
    try:
        result = diff_templates(
            load_source(old, found.model_dir),
            load_source(new, found.model_dir),
            deployment=found,
            log_paths=log or (),
            options=DiffOptions(
                analysis=AnalysisOptions(log_format=log_format, cache_generated=cache_generated),
                roll_out_share=roll_out_at,
                gpu=gpu,
                tensor_parallel=tensor_parallel,
            ),
            progress=progress,
        )
    finally:
        progress.close()
    gate = diff_as_gate(result, severity)

    def as_text(gate: GateReport, how: RenderOptions) -> str:
        return diff_text(result, gate, how, show_text=show_text)

    return _finish(
        gate, render(as_text, lambda: diff_values(result, gate)), output=output, color=color
    )


def _finish(
    gate: GateReport,
    render: object,
    *,
    output: Path | None,
    color: options.Colour,
) -> int:
    from prefixaudit.cli import streams
    from prefixaudit.core.report import RenderOptions

    assert callable(render)
    colour = streams.wants_colour(color, output)
    streams.write_result(render(gate, RenderOptions(colour=colour)), output)
    if gate.incomplete is not None:
        streams.complain(f"incomplete: {gate.incomplete}")
    return gate.exit_code


COMMAND = Command(group=group, order=25)
