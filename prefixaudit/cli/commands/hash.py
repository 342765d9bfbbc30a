"""`prefixaudit hash`: the chain of block hashes of one prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def hash_prompt(
    log: Annotated[
        str | None,
        typer.Argument(metavar="[LOG]", help="A log; take the prompt of --request from it."),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="ID", help="Request id, or line, of the log's record."),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            metavar="IDS",
            help="Token ids: `1,2,3`, a JSON list, `@FILE` or `-` for stdin.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="A raw prompt (needs --model); `@FILE` or `-` for stdin."
        ),
    ] = None,
    deployment: options.DeploymentOption = None,
    model: options.ModelOption = None,
    engine: options.EngineOption = None,
    tier: Annotated[
        str | None, typer.Option("--tier", metavar="NAME", help="The engine's pool or store.")
    ] = None,
    block_size: options.BlockSizeOption = None,
    log_format: options.LogFormatOption = None,
    chat_template: options.ChatTemplateOption = None,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            "--identity",
            metavar="FIELD=VALUE",
            help="An identity field (lora_name, cache_salt, ...); `FIELD=` is: none. Repeatable.",
        ),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", metavar="NAME", help="The engine's hash option.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="SEED", help="PYTHONHASHSEED of the engine.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="VERSION", help="Python of the engine (old releases)."),
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", metavar="HEX", help="The parent of block 0, if known.")
    ] = None,
    lora_id: Annotated[
        int | None, typer.Option("--lora-id", metavar="N", help="Adapter number (old releases).")
    ] = None,
    lookahead: Annotated[
        int, typer.Option("--lookahead", metavar="N", min=0, help="Lookahead tokens in a hash.")
    ] = 0,
    bigram: Annotated[
        bool, typer.Option("--bigram", help="Hash pairs of neighbours (EAGLE-like drafting).")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Hash the unfilled tail too (LMCache).")
    ] = False,
    output_format: options.TextOrJsonOption = "text",
    output: options.OutputOption = None,
) -> None:
    """The block hashes of a prompt: canonical, or an engine's own.

    Without --engine the chain is SHA-256 over tokens and media; with --identity fields, under the
    complete identity. With --engine it is what the engine computes, byte for byte, in full and as
    it is published in events.

    \b
    Examples:
      prefixaudit hash --ids 1,2,3,4,5,6,7,8 --block-size 4
      prefixaudit hash --ids @prompt.json --engine vllm@0.33.0 --identity cache_salt=acme
      prefixaudit hash gateway.jsonl --request req-8123 --model models/qwen3-32b
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.hashing import HashSettings, Source, as_json, as_text, hashed
    from prefixaudit.deployment import Overrides

    source = Source(log=log, request=request, ids=ids, text=text, log_format=log_format)
    settings = HashSettings(
        tier=tier,
        identity=tuple(identity or ()),
        algorithm=algorithm,
        seed=seed,
        python=python,
        root=root,
        lora_id=lora_id,
        lookahead=lookahead,
        bigram=bigram,
        partial=partial,
    )
    overrides = Overrides(
        model_dir=model, engine=engine, block_size=block_size, chat_template=chat_template
    )
    result = hashed(source, settings, deployment, overrides)
    streams.write_result(as_json(result) if output_format == "json" else as_text(result), output)


COMMAND = Command(run=hash_prompt, order=50)
