"""What a run imports: start-up is half of a short run, and most of it is modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Readers of deployment files, models and their costs, engines, gates.
_OF_DEPLOYMENTS = (
    "prefixaudit.core.gate",
    "prefixaudit.core.model",
    "prefixaudit.core.times",
    "prefixaudit.cost",
    "prefixaudit.deployment.events",
    "prefixaudit.deployment.file",
    "prefixaudit.deployment.servers",
    "prefixaudit.engines",
    "prefixaudit.families",
)


@pytest.fixture(scope="module")
def of_a_trace(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The modules in memory after `analyze` on a trace of block ids, without a deployment."""
    folder = tmp_path_factory.mktemp("trace")
    trace = folder / "trace.jsonl"
    record = {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
    trace.write_text("".join(f"{json.dumps(record)}\n" for _ in range(3)))
    return _modules_after(folder, "analyze", "trace.jsonl", "--format", "json")


def _modules_after(folder: Path, *arguments: str) -> frozenset[str]:
    script = (
        "import sys; from prefixaudit.cli import run; "
        f"code = run({list(arguments)!r}); print(); print(*sys.modules); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return frozenset(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", _OF_DEPLOYMENTS)
def test_trace_without_a_deployment_needs_no_reader_of_one(
    of_a_trace: frozenset[str], name: str
) -> None:
    assert "prefixaudit.analysis.pipeline" in of_a_trace
    assert name not in of_a_trace
