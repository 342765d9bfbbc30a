"""vLLM's YAML configuration (`vllm serve --config FILE`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources._process import Process
from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Sketch,
    SourceFile,
)
from prefixaudit.deployment.sources._vllm import TABLE, config_server
from prefixaudit.deployment.sources._yaml import line_of, yaml_or_none

_FOREIGN: Final = ("apiVersion", "services", "chunk_size", "server", "engine")


def _config(file: SourceFile) -> Mapping[str, Any] | None:
    documents = yaml_or_none(file)
    if not documents or len(documents) != 1 or not isinstance(documents[0], Mapping):
        return None
    return documents[0]


def recognises(file: SourceFile) -> bool:
    """Say whether the file is one flat table with options of vLLM, `model` or two others."""
    config = _config(file)
    if config is None or any(key in config for key in _FOREIGN):
        return False
    known = [key for key in config if key.replace("_", "-") in TABLE.kept]
    return "model" in known or len(known) >= 2


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return the server that the file alone describes."""
    config = _config(file) or {}
    process = Process(
        name=PurePosixPath(file.path).name.partition(".")[0] or "server",
        words=(),
        location=Location(path=file.path, line=line_of(config)),
    )
    server, tiers = config_server(process, config, attachments)
    return Sketch(servers=(server,), tiers=tuple(tiers))


def attached(file: SourceFile) -> Mapping[str, SourceFile]:
    """Return the file itself, for the command line that names it."""
    return {PurePosixPath(file.path).name: file}


SOURCE = DeploymentSource(
    title="vLLM's YAML configuration",
    recognises=recognises,
    read=read,
    attached=attached,
    order=40,
    is_attachment=True,
)
