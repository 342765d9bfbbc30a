"""Command lines and shell scripts: `vllm serve …`, `python -m sglang.launch_server …`."""

from __future__ import annotations

from pathlib import PurePosixPath

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources._process import Process, script_processes
from prefixaudit.deployment.sources._programs import sketch_of
from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Sketch,
    SourceFile,
)


def _base(file: SourceFile) -> Process:
    stem = PurePosixPath(file.path).name.partition(".")[0]
    return Process(name=stem or "server", words=(), location=Location(path=file.path, line=1))


def recognises(file: SourceFile) -> bool:
    """Say whether the text, read as a shell script, starts a server."""
    starts = ("vllm", "sglang", "dynamo", "lmcache")
    if not any(name in file.text for name in starts):
        return False
    return next(script_processes(file.text, _base(file), is_whole_file=True), None) is not None


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return the servers that the script starts, in order."""
    return sketch_of(script_processes(file.text, _base(file), is_whole_file=True), attachments)


SOURCE = DeploymentSource(
    title="command lines and shell scripts that start vLLM or SGLang",
    recognises=recognises,
    read=read,
    order=90,
)
