"""`prefixaudit init`: a prefixaudit.toml out of the deployment files that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def init(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FROM...",
            help="Scripts, manifests, compose files, configurations; a prefixaudit.toml on top.",
            show_default=False,
        ),
    ],
    output: options.OutputOption = None,
) -> None:
    """Write the prefixaudit.toml that deployment files amount to.

    Reads `vllm serve` and SGLang command lines and scripts, Kubernetes manifests, compose files,
    vLLM's and LMCache's YAML. Nothing is run, and no key or token is kept. What stayed unknown is
    written as a comment.

    \b
    Examples:
      prefixaudit init serve.sh
      prefixaudit init deployment.yaml lmcache.yaml -o prefixaudit.toml
    """
    from prefixaudit.cli import streams
    from prefixaudit.deployment.reading import written_toml

    streams.write_result(written_toml(sources), output)


COMMAND = Command(run=init, order=20)
