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
# What renders, encodes and compares prompts; pools of other kinds than the one that is simulated.
_OF_TEXT = (
    "prefixaudit.pool.explicit",
    "prefixaudit.prompts.parallel",
    "prefixaudit.prompts.replayer",
    "prefixaudit.prompts.templates",
    "prefixaudit.why.explaining",
    "prefixaudit.why.pairing",
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


@pytest.mark.parametrize("name", _OF_TEXT)
def test_trace_of_ids_needs_nothing_for_text(of_a_trace: frozenset[str], name: str) -> None:
    assert "prefixaudit.analysis.pipeline" in of_a_trace
    assert name not in of_a_trace


def test_look_at_a_log_compiles_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}\n')

    modules = _modules_after(tmp_path, "inspect", "log.jsonl")

    assert "prefixaudit.analysis.inspecting" in modules
    assert "numba" not in modules


def test_gate_without_a_log_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "prefixaudit.toml").write_text('[engine]\nname = "vllm"\nversion = "0.33.0"\n')

    modules = _modules_after(tmp_path, "gate", "prefixaudit.toml")

    assert "prefixaudit.gate.evaluate" in modules
    assert "numba" not in modules
