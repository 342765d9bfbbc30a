"""Mooncake's JSON configuration (MOONCAKE_CONFIG_PATH)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Sketch,
    SourceFile,
)
from prefixaudit.deployment.sources._yaml import yaml_or_none


def recognises(file: SourceFile) -> bool:
    """Say whether the file is one table with the master's or metadata server's address."""
    if "master_server_address" not in file.text and "metadata_server" not in file.text:
        return False
    documents = yaml_or_none(file)
    if not documents or not isinstance(documents[0], Mapping):
        return False
    return "master_server_address" in documents[0] or "metadata_server" in documents[0]


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return nothing: the file says which store servers use that other files describe."""
    return Sketch()


def attached(file: SourceFile) -> Mapping[str, SourceFile]:
    """Return the file itself, for the server that names it."""
    return {PurePosixPath(file.path).name: file}


SOURCE = DeploymentSource(
    title="Mooncake's JSON configuration",
    recognises=recognises,
    read=read,
    attached=attached,
    order=20,
    is_attachment=True,
)
