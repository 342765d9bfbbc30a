"""LMCache's YAML configuration (LMCACHE_CONFIG_FILE)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Sketch,
    SourceFile,
)
from prefixaudit.deployment.sources._yaml import yaml_or_none

_KEYS: Final = (
    "chunk_size",
    "local_cpu",
    "max_local_cpu_size",
    "remote_url",
    "remote_serde",
    "local_disk",
    "max_local_disk_size",
    "pre_caching_hash_algorithm",
    "save_unfull_chunk",
    "enable_blending",
)


def recognises(file: SourceFile) -> bool:
    """Say whether the file is one table with two or more of LMCache's keys."""
    documents = yaml_or_none(file)
    if not documents or not isinstance(documents[0], Mapping):
        return False
    return sum(key in documents[0] for key in _KEYS) >= 2


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return nothing: the file says how servers keep blocks that other files describe."""
    return Sketch()


def attached(file: SourceFile) -> Mapping[str, SourceFile]:
    """Return the file itself, for the server that names it."""
    return {PurePosixPath(file.path).name: file}


SOURCE = DeploymentSource(
    title="LMCache's YAML configuration",
    recognises=recognises,
    read=read,
    attached=attached,
    order=30,
    is_attachment=True,
)
