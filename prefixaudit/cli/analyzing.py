"""What the commands that read a log share: finding the deployment, rendering, writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prefixaudit.cli import streams
from prefixaudit.deployment import Deployment, Overrides, find_deployment, load_deployment

if TYPE_CHECKING:
    from prefixaudit.core.report import Report


def load_for(paths: Sequence[str], file: Path | None, overrides: Overrides) -> Deployment:
    """Return the deployment for a log: the file given, else the one beside the log, else none.

    Says on stderr which file was found. Raises ConfigurationError and UsageError.
    """
    if file is None:
        file = find_deployment(paths)
        if file is not None:
            streams.note(f"using {file}")
    if file is not None and file.suffix != ".toml":
        from prefixaudit.deployment.reading import read_deployments

        return read_deployments([file], overrides)
    return load_deployment(file, overrides)


def write_rows(report: Report, path: Path) -> None:
    """Write the per-request rows of a report as JSON lines, the whole file or nothing."""
    from prefixaudit.render._rows import per_request_lines

    streams.write_file(path, b"".join(per_request_lines(report)))
