"""`prefixaudit verify`: recompute golden vectors with this installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of vectors, or one file; see verify/FORMAT.md."),
    ],
    output_format: options.TextOrJsonOption = "text",
    output: options.OutputOption = None,
) -> int:
    """Recompute vectors that engines themselves produced.

    A folder made with an engine build of your own shows whether this installation computes its
    keys and hits exactly. Files of no known kind and cases that can't be recomputed are named.
    Exit 0: all equal. 1: something differs. 3: a JSON file is broken or of no known kind, or
    nothing was verified.

    \b
    Examples:
      prefixaudit verify goldens/
      prefixaudit verify goldens/vllm_hashes --format json
    """
    from prefixaudit.cli import streams
    from prefixaudit.cli.verifying import as_json, as_text, exit_code
    from prefixaudit.verify import verify_folder

    report = verify_folder(folder)
    streams.write_result(as_json(report) if output_format == "json" else as_text(report), output)
    return exit_code(report)


COMMAND = Command(run=verify, order=60)
